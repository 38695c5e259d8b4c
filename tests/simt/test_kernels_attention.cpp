#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cuda/kernels.h"
#include "tests/catch.h"
#include "tests/guarded_memory.h"
#include "tests/simt/runner.h"

// The attention and loss kernels of kernels/cuda, called directly, against those of kernels/cpu:
// at the edges of tiles, with NaN wherever nothing may be read, in every thread order.

namespace primal::simt {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kTolerance = 2e-6;
constexpr double kBf16Tolerance = 4e-3;  // of probabilities and their gradients, rounded to 8 bits

/// Elements between guard words. The words are NaN as floats, and their odd number leaves the
/// elements aligned to 4 bytes only, as a slice of a flat buffer may be.
template <class T>
class Guarded {
 public:
  explicit Guarded(const std::vector<T>& values) : words_(values.size() + 2 * kGuard) {
    static_assert(sizeof(T) == 4);
    std::memset(words_.data(), 0xFF, words_.size() * sizeof(T));
    std::copy(values.begin(), values.end(), words_.begin() + kGuard);
  }

  T* data() { return words_.data() + kGuard; }
  const T* data() const { return words_.data() + kGuard; }
  std::vector<T> values() const { return {words_.begin() + kGuard, words_.end() - kGuard}; }
  bool intact() const {
    const std::vector<unsigned char> pattern(kGuard * sizeof(T), 0xFF);
    return std::memcmp(words_.data(), pattern.data(), pattern.size()) == 0 &&
           std::memcmp(words_.data() + words_.size() - kGuard, pattern.data(), pattern.size()) == 0;
  }

 private:
  static constexpr std::size_t kGuard = 67;
  std::vector<T> words_;
};

using Floats = Guarded<float>;
using Values = std::vector<float>;

/// What a kernel writes: first it holds `initial`. Errors are relative to the largest element, or
/// to `least` where that is larger.
struct Output {
  std::string name;
  Values initial;
  double least = 0;
};

Output overwritten(const std::string& name, int64_t count, double least = 0) {
  return {name, Values(static_cast<std::size_t>(count), kNan), least};
}

/// Largest difference, as kTolerance bounds it; infinite where one of the two is not finite.
double error_of(const Values& values, const Values& expected, double least) {
  double largest = least;
  double difference = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!std::isfinite(values[i]) || !std::isfinite(expected[i])) {
      return std::numeric_limits<double>::infinity();
    }
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
    difference = std::max(difference, std::abs(static_cast<double>(values[i]) - expected[i]));
  }
  return difference == 0 ? 0 : difference / largest;
}

bool same_bits(const Values& a, const Values& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Calls kernel(exec, pointers to fresh outputs); returns what it wrote.
template <class Kernel>
std::vector<Values> outputs_of(const Exec& exec, const std::vector<Output>& outputs,
                               const Kernel& kernel) {
  std::vector<Floats> buffers;
  std::vector<float*> pointers;
  buffers.reserve(outputs.size());
  for (const Output& output : outputs) {
    pointers.push_back(buffers.emplace_back(output.initial).data());
  }
  kernel(exec, pointers);
  std::vector<Values> results;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    INFO(outputs[i].name);
    CHECK(buffers[i].intact());
    results.push_back(buffers[i].values());
  }
  return results;
}

/// Checks the device's kernel against the CPU's in every thread order; returns the CPU's results.
template <class Cpu, class Device>
std::vector<Values> compare(const std::vector<Output>& outputs, const Cpu& cpu,
                            const Device& device, Precision precision = Precision::float32) {
  const std::vector<Values> expected = outputs_of(Exec{}, outputs, cpu);
  const auto report = std::make_shared<testing::GuardedMemory::Report>();
  CachingAllocator memory(std::make_unique<testing::GuardedMemory>(report));
  cuda::Stream stream;
  stream.memory = &memory;
  Exec exec;
  exec.stream = &stream;
  exec.precision = precision;
  const double tolerance = precision == Precision::bf16 ? kBf16Tolerance : kTolerance;
  std::vector<Values> first;
  for (const Order order : {Order::ascending, Order::descending, Order::shuffled}) {
    set_order(order);
    const std::vector<Values> results = outputs_of(exec, outputs, device);
    if (first.empty()) first = results;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      INFO(outputs[i].name << ", order " << static_cast<int>(order));
      CHECK(error_of(results[i], expected[i], outputs[i].least) <= tolerance);
      CHECK(same_bits(results[i], first[i]));
    }
  }
  CHECK(report->live == 0);
  CHECK(report->violations == 0);
  return expected;
}

Values uniform(std::mt19937& rng, int64_t count) {
  Values values(static_cast<std::size_t>(count));
  for (float& v : values) v = static_cast<float>(rng() / 2147483648.0 - 1);
  return values;
}

/// All positions, half of them, none.
std::vector<int32_t> some_lengths(int64_t batch, int64_t length) {
  std::vector<int32_t> lengths;
  for (int64_t b = 0; b < batch; ++b) {
    lengths.push_back(static_cast<int32_t>(b % 3 == 0   ? length
                                           : b % 3 == 1 ? (length + 1) / 2
                                                        : 0));
  }
  return lengths;
}

/// NaN in the rows (of `width`) of a sample of `rows` that begin at its padding.
void spoil_padding(Values& x, const int32_t* lengths, int64_t length, int64_t width) {
  for (std::size_t i = 0; lengths != nullptr && i < x.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / width;
    if (row % length >= lengths[row / length]) x[i] = kNan;
  }
}

Dropout dropout_of(double p) {
  Dropout d;
  d.seed = 0x123456789ABCDEF;
  d.step = 0x200000003;
  d.op = 7;
  d.keep_below = static_cast<uint32_t>(std::lround((1 - p) * 65536));
  d.scale = static_cast<float>(1 / (1 - p));
  return d;
}

AttentionArgs attention_args(int64_t batch, int64_t heads, int64_t length, int64_t head_width,
                             bool causal, double p) {
  AttentionArgs a;
  a.batch = batch;
  a.heads = heads;
  a.length = length;
  a.head_width = head_width;
  a.scale = 1 / std::sqrt(static_cast<float>(head_width));
  a.causal = causal;
  a.dropout = dropout_of(p);
  return a;
}

std::string text(const AttentionArgs& a) {
  return "length " + std::to_string(a.length) + ", width " + std::to_string(a.head_width) +
         (a.causal ? ", causal" : "") + (a.lengths != nullptr ? ", padded" : "") +
         (a.all_queries ? ", all queries" : "") + (a.dropout.active() ? ", dropout" : "");
}

/// Forward, then backward from the CPU's forward, which is float32: operands are bfloat16 already
/// where that is the device's precision.
void check_attention(const AttentionArgs& a, const Floats& q, const Floats& k, const Floats& v,
                     const Floats& dout, Precision precision = Precision::float32) {
  INFO(text(a));
  const int64_t rows = a.batch * a.heads * a.length;
  // Numbers of size one are weighed and added: their errors do not shrink where the sum does.
  const double mean = precision == Precision::bf16 ? 0.5 : 0;
  const std::vector<Values> forward = compare(
      {overwritten("out", rows * a.head_width, mean), overwritten("log_sum", rows)},
      [&](const Exec& exec, const std::vector<float*>& to) {
        cpu::attention(exec, a, q.data(), k.data(), v.data(), to[0], to[1]);
      },
      [&](const Exec& exec, const std::vector<float*>& to) {
        attention(exec, a, q.data(), k.data(), v.data(), to[0], to[1]);
      },
      precision);
  const Floats out(forward[0]);
  const Floats log_sum(forward[1]);
  const auto gradients = [&](const std::vector<float*>& to) {
    return AttentionGradients{q.data(),    k.data(), v.data(), out.data(), log_sum.data(),
                              dout.data(), to[0],    to[1],    to[2]};
  };
  // Where one key is seen, dP - <dO, O> cancels: dQ and dK are errors of numbers of size one.
  compare(
      {overwritten("dq", rows * a.head_width, 1), overwritten("dk", rows * a.head_width, 1),
       overwritten("dv", rows * a.head_width, mean)},
      [&](const Exec& exec, const std::vector<float*>& to) {
        cpu::attention_backward(exec, a, gradients(to));
      },
      [&](const Exec& exec, const std::vector<float*>& to) {
        attention_backward(exec, a, gradients(to));
      },
      precision);
}

void check_attention(AttentionArgs a, bool padded, Precision precision = Precision::float32) {
  std::mt19937 rng(static_cast<unsigned>(a.length * 1000 + a.head_width));
  const std::vector<int32_t> lengths = some_lengths(a.batch, a.length);
  const Guarded<int32_t> device_lengths(lengths);
  if (padded) a.lengths = device_lengths.data();
  const int64_t width = a.heads * a.head_width;
  const auto draw = [&](bool spoil) {
    Values x = uniform(rng, a.batch * a.length * width);
    if (precision == Precision::bf16) {
      for (float& value : x) value = round_to_bf16(value);
    }
    if (spoil) spoil_padding(x, a.lengths, a.length, width);
    return Floats(x);
  };
  const Floats q = draw(!a.all_queries);
  const Floats k = draw(true);
  const Floats v = draw(true);
  check_attention(a, q, k, v, draw(!a.all_queries), precision);
}

/// Scores (batch, heads, length, length) with `hidden` where a query does not see the key.
Values hidden_scores(std::mt19937& rng, const AttentionArgs& a, float hidden) {
  Values scores = uniform(rng, a.batch * a.heads * a.length * a.length);
  for (std::size_t at = 0; at < scores.size(); ++at) {
    const auto i = static_cast<int64_t>(at);
    const int64_t key = i % a.length;
    const int64_t query = i / a.length % a.length;
    const int64_t b = i / (a.heads * a.length * a.length);
    const int64_t keys = a.lengths != nullptr ? a.lengths[b] : a.length;
    const bool seen = (a.all_queries || query < keys) && key < keys && (!a.causal || key <= query);
    scores[at] = seen ? 8 * scores[at] : hidden;
  }
  return scores;
}

void check_softmax(AttentionArgs a, bool padded, float hidden) {
  const Guarded<int32_t> lengths(some_lengths(a.batch, a.length));
  if (padded) a.lengths = lengths.data();
  INFO(text(a));
  std::mt19937 rng(static_cast<unsigned>(a.length));
  const int64_t count = a.batch * a.heads * a.length * a.length;
  std::vector<Output> outputs{{"probabilities", hidden_scores(rng, a, hidden)}};
  const bool drops = a.dropout.active();
  if (drops) outputs.push_back(overwritten("dropped", count));
  const auto dropped = [&](const std::vector<float*>& to) { return drops ? to[1] : nullptr; };
  const std::vector<Values> forward = compare(
      outputs,
      [&](const Exec& exec, const std::vector<float*>& to) {
        cpu::attention_softmax(exec, a, to[0], dropped(to));
      },
      [&](const Exec& exec, const std::vector<float*>& to) {
        attention_softmax(exec, a, to[0], dropped(to));
      });
  const Floats probabilities(forward[0]);
  compare(
      {{"gradient", uniform(rng, count), 1}},
      [&](const Exec& exec, const std::vector<float*>& to) {
        cpu::attention_softmax_backward(exec, a, probabilities.data(), to[0]);
      },
      [&](const Exec& exec, const std::vector<float*>& to) {
        attention_softmax_backward(exec, a, probabilities.data(), to[0]);
      });
}

struct KsvdCase {
  int64_t batch, heads, length, rank, trace_rows;
  bool own_traces, per_sample, padded, together;
};

void check_ksvd(const KsvdCase& c) {
  INFO("batch " << c.batch << ", heads " << c.heads << ", length " << c.length << ", rank "
                << c.rank << (c.own_traces ? ", own traces" : "")
                << (c.per_sample ? ", per sample" : "") << (c.padded ? ", padded" : "")
                << (c.together ? ", e and r together" : ""));
  std::mt19937 rng(static_cast<unsigned>(c.length * 100 + c.rank));
  KsvdArgs a;
  a.batch = c.batch;
  a.heads = c.heads;
  a.length = c.length;
  a.rank = c.rank;
  a.per_sample = c.per_sample;
  a.trace_batch = c.own_traces ? c.batch : 1;
  a.trace_rows = c.trace_rows;
  const Guarded<int32_t> lengths(some_lengths(a.batch, a.length));
  if (c.padded) a.lengths = lengths.data();
  a.stride = (c.together ? 2 : 1) * a.rank;
  const int64_t count = a.batch * a.heads * a.length * a.stride;
  const int64_t traces = a.trace_batch * a.heads * a.trace_rows * a.rank;
  Values scores[] = {uniform(rng, count), uniform(rng, count)};
  for (int64_t i = 0; c.padded && i < count; ++i) {
    const int64_t position = i / (a.heads * a.stride);
    if (position % a.length < lengths.data()[position / a.length]) continue;
    for (Values& x : scores) x[static_cast<std::size_t>(i)] = kNan;
  }
  const Floats e(scores[0]);
  const Floats r(scores[1]);
  const Floats lambda(uniform(rng, a.heads * a.rank));
  const Floats trace_e(uniform(rng, traces));
  const Floats trace_r(uniform(rng, traces));
  a.e = e.data();
  a.r = c.together ? e.data() + a.rank : r.data();
  a.lambda = lambda.data();
  a.trace_e = trace_e.data();
  a.trace_r = trace_r.data();
  const std::vector<Values> forward = compare(
      {overwritten("j", a.batch), overwritten("loss", 1)},
      [&](const Exec& exec, const std::vector<float*>& to) { cpu::ksvd(exec, a, to[0], to[1]); },
      [&](const Exec& exec, const std::vector<float*>& to) { ksvd(exec, a, to[0], to[1]); });
  const Floats j(forward[0]);
  const Floats dloss(Values{0.37F});
  // Added to the scores' gradients or put in their place; dr is in the buffer of de where e and r
  // are together.
  const bool accumulate = c.padded;
  const auto score_gradient = [&](const char* name) {
    return accumulate ? Output{name, uniform(rng, count)} : overwritten(name, count);
  };
  std::vector<Output> outputs{{"dlambda", uniform(rng, a.heads * a.rank)},
                              {"dtrace_e", uniform(rng, traces)},
                              {"dtrace_r", uniform(rng, traces)},
                              score_gradient("de")};
  if (!c.together) outputs.push_back(score_gradient("dr"));
  // All gradients, and each alone where that is cheap.
  for (std::size_t only = c.length == 29 ? 0 : outputs.size(); only <= outputs.size(); ++only) {
    const bool all = only == outputs.size();
    const auto gradients = [&](const std::vector<float*>& to) {
      KsvdGradients g;
      g.accumulate_de = g.accumulate_dr = accumulate;
      float** const members[] = {&g.dlambda, &g.dtrace_e, &g.dtrace_r, &g.de, &g.dr};
      for (std::size_t i = 0; i < to.size(); ++i) *members[all ? i : only] = to[i];
      if (c.together && g.de != nullptr) g.dr = g.de + a.rank;
      return g;
    };
    compare(
        all ? outputs : std::vector<Output>{outputs[only]},
        [&](const Exec& exec, const std::vector<float*>& to) {
          cpu::ksvd_backward(exec, a, j.data(), dloss.data(), gradients(to));
        },
        [&](const Exec& exec, const std::vector<float*>& to) {
          ksvd_backward(exec, a, j.data(), dloss.data(), gradients(to));
        });
  }
}

void check_cross_entropy(int64_t rows, int64_t classes, const Values& logits) {
  INFO("rows " << rows << ", classes " << classes);
  std::mt19937 rng(static_cast<unsigned>(rows * 1000 + classes));
  const Floats x(logits);
  std::vector<int32_t> draws;
  for (int64_t row = 0; row < rows; ++row) {
    draws.push_back(static_cast<int32_t>(rng() % static_cast<unsigned>(classes)));
  }
  const Guarded<int32_t> labels(draws);
  const std::vector<Values> forward = compare(
      {overwritten("loss", 1), overwritten("probabilities", rows * classes),
       overwritten("correct", 1)},
      [&](const Exec& exec, const std::vector<float*>& to) {
        cpu::cross_entropy(exec, rows, classes, x.data(), labels.data(), to[0], to[1], to[2]);
      },
      [&](const Exec& exec, const std::vector<float*>& to) {
        cross_entropy(exec, rows, classes, x.data(), labels.data(), to[0], to[1], to[2]);
      });
  const Floats probabilities(forward[1]);
  const Floats dloss(Values{-1.7F});
  for (const bool accumulate : {false, true}) {
    const Output dlogits = accumulate ? Output{"dlogits", uniform(rng, rows * classes)}
                                      : overwritten("dlogits", rows * classes);
    compare(
        {dlogits},
        [&](const Exec& exec, const std::vector<float*>& to) {
          cpu::cross_entropy_backward(exec, rows, classes, probabilities.data(), labels.data(),
                                      dloss.data(), to[0], accumulate);
        },
        [&](const Exec& exec, const std::vector<float*>& to) {
          cross_entropy_backward(exec, rows, classes, probabilities.data(), labels.data(),
                                 dloss.data(), to[0], accumulate);
        });
  }
}

}  // namespace

TEST_CASE("simt kernels: blockwise attention is the CPU's at every edge of a tile") {
  int turn = 0;
  for (const int64_t length : {1, 7, 29, 64, 65, 130}) {
    for (const int64_t width : {1, 8, 30, 64, 128}) {
      for (const bool causal : {false, true}) {
        for (const bool padded : {false, true}) {
          // Dropout alternates over the combinations of the others, of which long sequences
          // take every second one.
          if (length >= 64 && (width % 3 == 2) == (causal == padded)) continue;
          const double p = turn / 2 % 2 == turn % 2 ? 0.0 : 0.25;
          const int64_t batch = !padded ? 1 : length < 64 ? 3 : 2;
          const int64_t heads = padded && length >= 64 ? 1 : 2;
          check_attention(attention_args(batch, heads, length, width, causal, p), padded);
          ++turn;
        }
      }
    }
  }
  check_attention(attention_args(1, 2, 128, 8, false, 0.25), false);  // mask rows end with a block
}

TEST_CASE("simt kernels: padded queries attend on request") {
  for (const Precision precision : {Precision::float32, Precision::bf16}) {
    for (const int64_t length : {7, 65, 130}) {
      for (const bool causal : {false, true}) {
        AttentionArgs a = attention_args(3, 1, length, 30, causal, causal ? 0.0 : 0.25);
        a.all_queries = true;
        check_attention(a, true, precision);
        if (precision == Precision::float32) check_softmax(a, true, kNan);
      }
    }
  }
}

TEST_CASE("simt kernels: attention on tensor cores is the CPU's up to the rounding to bfloat16") {
  int turn = 0;
  for (const int64_t length : {1, 7, 64, 65, 130}) {
    for (const int64_t width : {1, 31, 64, 65, 128}) {
      // Causality, padding and dropout in every combination, one or two to a length and width.
      for (int i = 0; i < (length < 64 ? 2 : 1); ++i, turn += 3) {
        const bool padded = (turn & 2) != 0;
        const int64_t heads = length < 64 ? 2 : 1;
        check_attention(attention_args(padded ? 3 : 1, heads, length, width, (turn & 1) != 0,
                                       (turn & 4) != 0 ? 0.25 : 0.0),
                        padded, Precision::bf16);
      }
    }
  }
  check_attention(attention_args(1, 1, 200, 16, false, 0.25), false, Precision::bf16);
}

TEST_CASE("simt kernels: attention carries a maximum that rises or falls from tile to tile") {
  for (const bool rising : {false, true}) {
    AttentionArgs a = attention_args(1, 1, 130, 8, false, 0.25);
    a.scale = 0.25F;
    std::mt19937 rng(5);
    // Whole numbers: scores are exact, up to 90, so that kTolerance holds for them too.
    Values q = uniform(rng, a.length * a.head_width);
    Values k = q;
    for (std::size_t i = 0; i < q.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / a.head_width;
      q[i] = 1 + std::round(q[i]);
      k[i] = static_cast<float>((rising ? row : a.length - row) / 6);
    }
    const Values v = uniform(rng, a.length * a.head_width);
    const Values dout = uniform(rng, a.length * a.head_width);
    check_attention(a, Floats(q), Floats(k), Floats(v), Floats(dout));
  }
}

TEST_CASE("simt kernels: attention without samples or positions does nothing") {
  for (const auto& [batch, length] : {std::pair<int64_t, int64_t>{0, 5}, {2, 0}}) {
    check_attention(attention_args(batch, 2, length, 8, true, 0.25), false);
    check_softmax(attention_args(batch, 2, length, 8, true, 0.25), false, kNan);
  }
}

TEST_CASE("simt kernels: attention names the width of heads that are too wide") {
  const AttentionArgs a = attention_args(1, 1, 1, 200, false, 0);
  const auto run = [&] { attention(Exec{}, a, nullptr, nullptr, nullptr, nullptr, nullptr); };
  CHECK_THROWS_WITH(run(), ContainsSubstring("[attention] heads 200 wide: at most 128"));
}

TEST_CASE("simt kernels: the materialised softmax is the CPU's, which sees no hidden score") {
  for (const int64_t length : {1, 7, 29, 64, 65, 130}) {
    for (const bool causal : {false, true}) {
      for (const bool padded : {false, true}) {
        for (const double p : {0.0, 0.25}) {
          const int64_t batch = !padded ? 1 : length < 64 ? 3 : 2;
          const int64_t heads = length < 64 ? 3 : 1;
          const float hidden = p == 0 ? kNan : 100.0F;
          check_softmax(attention_args(batch, heads, length, 1, causal, p), padded, hidden);
        }
      }
    }
  }
}

TEST_CASE("simt kernels: a NaN or infinite score makes its row of the materialised softmax NaN") {
  const AttentionArgs a = attention_args(1, 1, 3, 1, false, 0);
  Values scores{1, 2, 3, 4, kNan, 5, 6, 7, std::numeric_limits<float>::infinity()};
  attention_softmax(Exec{}, a, scores.data(), nullptr);
  for (std::size_t i = 0; i < scores.size(); ++i) CHECK(std::isnan(scores[i]) == (i >= 3));
}

TEST_CASE("simt kernels: the KSVD loss and each of its gradients are the CPU's") {
  for (const bool own_traces : {false, true}) {
    for (const bool per_sample : {false, true}) {
      for (const bool padded : {false, true}) {
        for (const bool together : {false, true}) {
          check_ksvd({1, 1, 1, 1, 1, own_traces, per_sample, padded, together});
          check_ksvd({3, 2, 29, 5, 7, own_traces, per_sample, padded, together});
          check_ksvd({2, 3, 130, 33, 10, own_traces, per_sample, padded, together});
        }
        if (!padded) check_ksvd({261, 1, 2, 3, 1, own_traces, per_sample, padded, true});
      }
    }
  }
  for (const bool per_sample : {false, true}) {
    check_ksvd({0, 2, 5, 3, 4, false, per_sample, false, true});
  }
}

TEST_CASE("simt kernels: the cross entropy is the CPU's, and the first maximum counts") {
  for (const int64_t rows : {1, 2, 9, 261}) {
    for (const int64_t classes : {1, 2, 10, 32, 33, 100}) {
      std::mt19937 rng(static_cast<unsigned>(rows + classes));
      Values logits = uniform(rng, rows * classes);
      check_cross_entropy(rows, classes, logits);
      for (float& x : logits) x = std::round(2 * x);  // ties in most rows
      check_cross_entropy(rows, classes, logits);
    }
  }
}

}  // namespace primal::simt
