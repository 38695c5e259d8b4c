#pragma once

#include "kernels/cuda/reduce.h"
#ifndef __CUDACC__
#include "kernels/bf16.h"
#endif

// Tensor cores: 16 x 8 products of bfloat16 operands, summed in float32. Operands and sums are
// spread over the lanes of a warp as PTX's mma.m16n8k16 says. With g = lane / 4 and t = lane % 4,
// each pair in a word, the first in its lower half:
//   a: rows g, g + 8 of columns 2 t, 2 t + 1, then the same of columns 2 t + 8, 2 t + 9;
//   b: rows 2 t, 2 t + 1 of column g, then rows 2 t + 8, 2 t + 9;
//   d: row g of columns 2 t, 2 t + 1, then row g + 8.

namespace primal::PRIMAL_DEVICE {

/// Two values, rounded to bfloat16, in a word.
__device__ inline uint32_t pack_bf16(float low, float high) {
#ifdef __CUDACC__
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
#else
  return bf16_bits(low) | uint32_t{bf16_bits(high)} << 16;
#endif
}

/// d (16, 8) += a (16, 16) b (16, 8).
__device__ inline void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
#ifdef __CUDACC__
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  ProductOperands operands{{a[0], a[1], a[2], a[3]}, {b0, b1}, d};
  exchange({Exchange::product, kAllLanes, 0, kWarp, reinterpret_cast<uint64_t>(&operands)});
#endif
}

/// Four 8 x 8 matrices of bfloat16 from shared memory: lane l gives the address of row l % 8 of
/// matrix l / 8, 16 bytes aligned to 16, and gets of each matrix columns 2 t, 2 t + 1 of row g.
__device__ inline void load_matrices(uint32_t (&m)[4], const uint32_t* row) {
#ifdef __CUDACC__
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
#else
  MatrixRows rows{row, m};
  exchange({Exchange::matrices, kAllLanes, 0, kWarp, reinterpret_cast<uint64_t>(&rows)});
#endif
}

/// The same, but a lane gets rows 2 t, 2 t + 1 of column g.
__device__ inline void load_transposed(uint32_t (&m)[4], const uint32_t* row) {
#ifdef __CUDACC__
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
#else
  MatrixRows rows{row, m};
  exchange({Exchange::matrices_transposed, kAllLanes, 0, kWarp, reinterpret_cast<uint64_t>(&rows)});
#endif
}

}  // namespace primal::PRIMAL_DEVICE
