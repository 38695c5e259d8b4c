#include "core/error.h"
#include "core/ops.h"
#include "tests/catch.h"
#include "tests/op_cases.h"

using namespace primal;
using namespace primal::testing;

namespace {

Tensor filled(const Backend& be, Shape shape, float value) {
  Tensor tensor = be.empty(shape);
  be.op->fill(be.exec, tensor.count(), value, tensor.data());
  return tensor;
}

/// A leaf of three values, with a gradient that must be overwritten.
struct Leaf {
  Leaf(Backend& be, Tape& tape)
      : gradient(filled(be, {3}, std::numeric_limits<float>::quiet_NaN())),
        var{to_device(be, {3}, {1, 2, 3}), tape.leaf(gradient)} {}
  Tensor gradient;
  Var var;
};

/// The sum of a value's elements, times `factor`.
Var sum(Context& ctx, const Var& x, float factor = 1) {
  const Tensor ones = filled(ctx.backend, x.shape(), factor);
  return seed_gradients(ctx, {x}, {ones});
}

struct Training {
  Backend be = cpu_backend(1);
  ParameterSet parameters;
  Tape tape{be};
  Context ctx{be, parameters, tape, Rng(1, 1)};
};

}  // namespace

TEST_CASE("the first gradient overwrites and later ones add") {
  Training t;
  const Leaf leaf(t.be, t.tape);
  const Var twice = ops::add_scaled(t.ctx, leaf.var, leaf.var, 4);
  t.tape.backward(sum(t.ctx, ops::add_scaled(t.ctx, twice, leaf.var, 10)));
  CHECK(to_host(t.be, leaf.gradient) == std::vector<float>{15, 15, 15});
}

TEST_CASE("a value that three ops use gets the sum of their gradients") {
  Training t;
  const Leaf leaf(t.be, t.tape);
  const Var x = ops::add_scaled(t.ctx, leaf.var, leaf.var, 1);  // 2 * leaf
  const Var a = ops::activation(t.ctx, x, Activation::relu, 0);
  const Var b = ops::reshape(t.ctx, x, {3, 1});
  const Var c = ops::add_scaled(t.ctx, x, x, 2);
  const Var all =
      ops::add_scaled(t.ctx, ops::add_scaled(t.ctx, a, ops::reshape(t.ctx, b, {3}), 1), c, 1);
  t.tape.backward(sum(t.ctx, all));
  CHECK(to_host(t.be, leaf.gradient) == std::vector<float>{10, 10, 10});
}

TEST_CASE("a gradient that one op hands to two inputs is not changed through either") {
  Training t;
  const Leaf left(t.be, t.tape);
  const Leaf right(t.be, t.tape);
  // Both branches get z's gradient itself; the left one then gets more.
  const Var a = ops::reshape(t.ctx, left.var, {3, 1});
  const Var b = ops::reshape(t.ctx, right.var, {3, 1});
  const Var more = ops::add_scaled(t.ctx, a, a, 6);
  const Var z = t.tape.record(t.be.empty({3, 1}), [a, b](Tape& tape, const Tensor& dz) {
    tape.give(a, dz);
    tape.give(b, dz);
  });
  t.tape.backward(sum(t.ctx, ops::add_scaled(t.ctx, more, z, 1)));
  CHECK(to_host(t.be, left.gradient) == std::vector<float>{8, 8, 8});
  CHECK(to_host(t.be, right.gradient) == std::vector<float>{1, 1, 1});
}

TEST_CASE("a parameter that is used twice gets both gradients, an unused one zeros") {
  Training t;
  const Parameter used = t.parameters.add("used", {3}, init::constant(1));
  const Parameter unused = t.parameters.add("unused", {2}, init::constant(1));
  const Parameter never_asked = t.parameters.add("never", {2}, init::constant(1));
  t.parameters.allocate(t.be, 1);
  t.be.op->fill(t.be.exec, 2, 7, t.parameters.gradient(unused).data());
  (void)t.ctx.use(unused);
  (void)never_asked;
  const Var first = t.ctx.use(used);
  const Var second = t.ctx.use(used);
  CHECK(first.node == second.node);
  t.tape.backward(sum(t.ctx, ops::add_scaled(t.ctx, first, second, 2)));
  CHECK(to_host(t.be, t.parameters.gradient(used)) == std::vector<float>{3, 3, 3});
  CHECK(to_host(t.be, t.parameters.gradient(unused)) == std::vector<float>{0, 0});
}

TEST_CASE("what the loss does not depend on is skipped") {
  Training t;
  const Leaf leaf(t.be, t.tape);
  bool ran = false;
  const Var aside = t.tape.record(t.be.empty({3}), [&ran](Tape&, const Tensor&) { ran = true; });
  (void)aside;
  t.tape.backward(sum(t.ctx, leaf.var));
  CHECK_FALSE(ran);
}

TEST_CASE("backward frees what ops saved, node by node") {
  Training t;
  const int64_t count = 1 << 16;
  const Tensor gradient = t.be.empty({count});
  Var x{filled(t.be, {count}, 1), t.tape.leaf(gradient)};
  const int64_t before = t.be.memory->figures().allocated;
  const int64_t one = count * static_cast<int64_t>(sizeof(float));
  {
    Var h = x;
    for (int i = 0; i < 10; ++i) h = ops::activation(t.ctx, h, Activation::gelu, 0);
    const Var loss = sum(t.ctx, h);
    h = {};
    const int64_t forward = t.be.memory->figures().allocated;
    CHECK(forward >= before + 10 * one);
    t.be.memory->reset_peak();
    t.tape.backward(loss);
    // Backward needs two gradients at a time, not ten, because saved values go as it advances.
    CHECK(t.be.memory->figures().peak_allocated <= forward + 2 * one);
  }
  CHECK(t.be.memory->figures().allocated == before);
}

TEST_CASE("evaluation keeps nothing") {
  Backend be = cpu_backend(1);
  ParameterSet none;
  Context ctx(be, none);
  Var h{filled(be, {1 << 16}, 1)};
  const int64_t before = be.memory->figures().allocated;
  for (int i = 0; i < 10; ++i) h = ops::activation(ctx, h, Activation::gelu, 0.1);
  CHECK(be.memory->figures().allocated == before);
  CHECK_FALSE(h.needs_gradient());
}

TEST_CASE("the tape refuses what it cannot differentiate") {
  Training t;
  const Leaf leaf(t.be, t.tape);
  CHECK_THROWS_WITH(t.tape.backward(leaf.var),
                    "[tape] backward starts from a single number, got (3)");
  CHECK_THROWS_WITH(t.tape.backward(Var{t.be.empty({1})}),
                    "[tape] the loss depends on no parameter");
  CHECK_THROWS_WITH(t.tape.give(leaf.var, t.be.empty({2})),
                    "[tape] a gradient of (2) was given to a value of (3)");
  CHECK_THROWS_AS(t.tape.slot(Var{leaf.var.value}), Error);
  const Var loss = sum(t.ctx, leaf.var);
  t.tape.backward(loss);
  CHECK_THROWS_WITH(t.tape.backward(loss), ContainsSubstring("[tape] a value that is not on the"));
}

TEST_CASE("a loss that is itself a parameter has gradient one") {
  Training t;
  const Tensor gradient = filled(t.be, {1}, 5);
  t.tape.backward(Var{filled(t.be, {1}, 2), t.tape.leaf(gradient)});
  CHECK(to_host(t.be, gradient) == std::vector<float>{1});
}
