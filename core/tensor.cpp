#include "core/tensor.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace primal {

Shape::Shape(std::initializer_list<int64_t> sizes)
    : Shape(std::span<const int64_t>(sizes.begin(), sizes.size())) {}

Shape::Shape(std::span<const int64_t> sizes) {
  if (sizes.size() > static_cast<size_t>(kMaxRank)) {
    fail("[shape] at most {} dimensions, got {}", kMaxRank, sizes.size());
  }
  rank_ = static_cast<int>(sizes.size());
  int64_t count = 1;
  for (int i = 0; i < rank_; ++i) {
    const int64_t size = sizes[i];
    if (size < 0) fail("[shape] sizes must be >= 0, got {}", size);
    sizes_[i] = size;
    if (__builtin_mul_overflow(count, std::max<int64_t>(size, 1), &count) ||
        count > std::numeric_limits<int64_t>::max() / 8) {
      fail("[shape] {} elements do not fit in memory", text());
    }
  }
}

int64_t Shape::operator[](int axis) const {
  const int at = axis < 0 ? rank_ + axis : axis;
  if (at < 0 || at >= rank_) fail("[shape] axis {} of {} does not exist", axis, text());
  return sizes_[at];
}

int64_t Shape::count() const {
  int64_t count = 1;
  for (int i = 0; i < rank_; ++i) count *= sizes_[i];
  return count;
}

std::string Shape::text() const {
  std::string text = "(";
  for (int i = 0; i < rank_; ++i) text += (i > 0 ? ", " : "") + std::to_string(sizes_[i]);
  return text + ")";
}

bool Shape::operator==(const Shape& other) const {
  return std::ranges::equal(sizes(), other.sizes());
}

Storage::Storage(std::shared_ptr<CachingAllocator> memory, int64_t bytes)
    : memory_(std::move(memory)), data_(static_cast<std::byte*>(memory_->allocate(bytes))) {}

Storage::~Storage() {
  memory_->free(data_);
}

Tensor::Tensor(const std::shared_ptr<CachingAllocator>& memory, Shape shape, DType dtype)
    : storage_(std::make_shared<Storage>(memory, shape.count() * size_of(dtype))),
      shape_(shape),
      dtype_(dtype) {}

void Tensor::expect(DType dtype) const {
  if (!defined()) fail("[tensor] undefined tensor read as {}", name_of(dtype));
  if (dtype_ != dtype) fail("[tensor] {} tensor read as {}", name_of(dtype_), name_of(dtype));
}

template <>
float* Tensor::data<float>() const {
  expect(DType::f32);
  return reinterpret_cast<float*>(storage_->data()) + offset_;
}

template <>
int32_t* Tensor::data<int32_t>() const {
  expect(DType::i32);
  return reinterpret_cast<int32_t*>(storage_->data()) + offset_;
}

Tensor Tensor::reshape(Shape shape) const {
  if (shape.count() != count()) {
    fail("[reshape] {} has {} elements, {} has {}", shape_.text(), count(), shape.text(),
         shape.count());
  }
  return slice(0, shape);
}

Tensor Tensor::slice(int64_t offset, Shape shape) const {
  if (offset < 0 || offset + shape.count() > count()) {
    fail("[slice] {} at element {} does not lie within {}", shape.text(), offset, shape_.text());
  }
  Tensor view = *this;
  view.offset_ += offset;
  view.shape_ = shape;
  return view;
}

}  // namespace primal
