#pragma once

#include <cstdint>
#include <string_view>

namespace primal {

enum class DType : uint8_t { f32, bf16, i32 };

constexpr int64_t size_of(DType type) {
  return type == DType::bf16 ? 2 : 4;
}

constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::f32:
      return "float32";
    case DType::bf16:
      return "bfloat16";
    case DType::i32:
      return "int32";
  }
  return "?";
}

}  // namespace primal
