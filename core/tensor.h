#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "core/dtype.h"
#include "core/memory.h"

namespace primal {

/// Sizes of up to six dimensions, outermost first.
class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes);
  explicit Shape(std::span<const int64_t> sizes);

  int rank() const { return rank_; }
  /// Size of dimension `axis`; negative axes count from the end.
  int64_t operator[](int axis) const;
  int64_t count() const;
  std::span<const int64_t> sizes() const { return {sizes_.data(), static_cast<size_t>(rank_)}; }
  std::string text() const;
  bool operator==(const Shape& other) const;

 private:
  std::array<int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

/// A block of device memory, returned to its allocator when the last tensor lets go of it.
class Storage {
 public:
  Storage(std::shared_ptr<CachingAllocator> memory, int64_t bytes);
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage();
  std::byte* data() const { return data_; }

 private:
  std::shared_ptr<CachingAllocator> memory_;
  std::byte* data_;
};

/// A contiguous, row-major array. Copies share storage.
class Tensor {
 public:
  Tensor() = default;
  /// Uninitialised values.
  Tensor(const std::shared_ptr<CachingAllocator>& memory, Shape shape, DType dtype = DType::f32);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  int64_t dim(int axis) const { return shape_[axis]; }
  int64_t count() const { return shape_.count(); }
  DType dtype() const { return dtype_; }
  /// True when no other tensor shares the storage.
  bool unique() const { return storage_.use_count() == 1; }

  /// The values; T must match the dtype. Host code may touch them only on a host backend.
  template <class T = float>
  T* data() const;
  std::span<float> floats() const;

  /// The same values under another shape of equal count.
  Tensor reshape(Shape shape) const;
  /// `shape.count()` values starting at element `offset`.
  Tensor slice(int64_t offset, Shape shape) const;

 private:
  void expect(DType dtype) const;

  std::shared_ptr<Storage> storage_;
  Shape shape_;
  DType dtype_ = DType::f32;
  int64_t offset_ = 0;
};

template <>
float* Tensor::data<float>() const;
template <>
int32_t* Tensor::data<int32_t>() const;

inline std::span<float> Tensor::floats() const {
  return {data<float>(), static_cast<size_t>(count())};
}

}  // namespace primal
