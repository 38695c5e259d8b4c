#pragma once

#include "layers/encoder.h"
#include "tests/op_cases.h"

namespace primal::testing {

/// An encoder of the given YAML, its parameters drawn, in evaluation.
struct TestEncoder {
  TestEncoder(const std::string& yaml, int64_t max_length, bool causal = false,
              KsvdConfig ksvd = {}) {
    read_config(ConfigSource::from_string(yaml, "test"), config);
    encoder = std::make_unique<Encoder>(parameters, config, ksvd, max_length, causal);
    parameters.allocate(be, 5);
  }

  struct Result {
    std::vector<float> output;  // (B, N, D)
    std::vector<float> ksvd;    // one per primal layer
  };

  Result run(const Shape& shape, const Values& x, const std::vector<int32_t>& lengths = {}) {
    Context ctx(be, parameters);
    Sequence sequence;
    Tensor lengths_tensor;
    if (!lengths.empty()) {
      lengths_tensor = to_device(be, lengths);
      sequence = {lengths, &lengths_tensor};
    }
    const Var y = encoder->forward(ctx, {to_device(be, shape, x)}, sequence);
    Result result{to_host(be, y.value), {}};
    for (const Var& loss : ctx.aux.of("ksvd")) {
      result.ksvd.push_back(to_host(be, loss.value).front());
    }
    return result;
  }

  Values parameter(const std::string& name) const {
    const std::vector<float> values = to_host(be, parameters.value(parameters.find(name)));
    return {values.begin(), values.end()};
  }
  void set(const std::string& name, float value) {
    const Tensor tensor = parameters.value(parameters.find(name));
    be.op->fill(be.exec, tensor.count(), value, tensor.data());
  }

  Backend be = cpu_backend(2);
  ParameterSet parameters;
  EncoderConfig config;
  std::unique_ptr<Encoder> encoder;
};

/// One layer of the given attention, 12 wide with 3 heads, without dropout.
inline std::string one_layer(const std::string& attention, const std::string& more = "") {
  return "{dim: 12, heads: 3, feedforward: 20, dropout: 0, attention_dropout: 0" + more +
         ", layers: [{attention: " + attention + "}]}";
}

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  return error_of(a, {b.begin(), b.end()});
}

}  // namespace primal::testing
