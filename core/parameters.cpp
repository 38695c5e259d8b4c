#include "core/parameters.h"

#include <Eigen/QR>
#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace primal {
namespace init {

Initializer constant(float value) {
  return [value](std::span<float> values, const Shape&, RandomStream&) {
    std::ranges::fill(values, value);
  };
}

Initializer uniform(float low, float high) {
  return [low, high](std::span<float> values, const Shape&, RandomStream& random) {
    for (float& value : values) value = random.uniform(low, high);
  };
}

Initializer normal(float std) {
  return [std](std::span<float> values, const Shape&, RandomStream& random) {
    for (float& value : values) value = std * random.normal();
  };
}

Initializer fan_in(int64_t fan_in) {
  const float bound = 1 / std::sqrt(static_cast<float>(std::max<int64_t>(fan_in, 1)));
  return uniform(-bound, bound);
}

Initializer orthogonal() {
  return [](std::span<float> values, const Shape& shape, RandomStream& random) {
    using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    const int64_t rows = shape[0];
    const int64_t columns = static_cast<int64_t>(values.size()) / rows;
    const int64_t tall = std::max(rows, columns);
    const int64_t thin = std::min(rows, columns);
    Matrix gauss(tall, thin);
    for (double& value : gauss.reshaped<Eigen::RowMajor>()) value = random.normal();
    const Eigen::HouseholderQR<Matrix> qr(gauss);
    Matrix q = qr.householderQ() * Matrix::Identity(tall, thin);
    // The signs of R's diagonal make the distribution uniform (Mezzadri, 2007).
    for (int64_t i = 0; i < thin; ++i) {
      if (qr.matrixQR()(i, i) < 0) q.col(i) *= -1;
    }
    if (rows < columns) q.transposeInPlace();
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(q.data()[i]);
  };
}

}  // namespace init

Parameter ParameterSet::add(std::string name, Shape shape, Initializer initializer) {
  if (values_.defined()) fail("[parameters] '{}' was added after allocation", name);
  if (std::ranges::any_of(entries_, [&](const Entry& entry) { return entry.name == name; })) {
    fail("[parameters] two parameters are named '{}'", name);
  }
  entries_.push_back({std::move(name), shape, count_, std::move(initializer)});
  // Each slice starts on a 64-byte boundary; the gap's values and gradients stay zero.
  count_ += (shape.count() + 15) / 16 * 16;
  return {static_cast<int>(entries_.size()) - 1};
}

void ParameterSet::allocate(const Backend& backend, uint64_t seed) {
  values_ = backend.empty({count_});
  gradients_ = backend.empty({count_});
  std::vector<float> host(count_, 0.0F);
  backend.op->upload(backend.exec, count_, host.data(), gradients_.data());
  for (const Entry& entry : entries_) {
    RandomStream random(seed, hash_name(entry.name));
    entry.initializer({host.data() + entry.offset, static_cast<size_t>(entry.shape.count())},
                      entry.shape, random);
  }
  backend.op->upload(backend.exec, count_, host.data(), values_.data());
}

Parameter ParameterSet::find(std::string_view name) const {
  const auto found =
      std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.name == name; });
  if (found == entries_.end()) fail("[parameters] no parameter is named '{}'", name);
  return {static_cast<int>(found - entries_.begin())};
}

Tensor ParameterSet::slice(const Tensor& flat, Parameter parameter) const {
  const Entry& entry = entries_.at(parameter.index);
  return flat.slice(entry.offset, entry.shape);
}

}  // namespace primal
