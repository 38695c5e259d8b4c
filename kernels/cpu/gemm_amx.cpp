// Single precision products on the AMX unit, which multiplies 16 x 32 by 32 x 16 tiles of bfloat16
// and adds into float: 16 times the arithmetic rate of AVX-512 in single precision.
//
// A float has 24 significant bits and a bfloat16 has 8, so x = x1 + x2 + x3 exactly, each term the
// rounding of what the terms before it leave. Of the nine products of (a1 + a2 + a3)(b1 + b2 + b3),
// those of relative size 2^-24 and less (a2 b3, a3 b2, a3 b3) are dropped, which leaves six and the
// accuracy of single precision. Both operands are packed, block by block, into panels of such
// terms. With a single term this is the product of operands rounded to bfloat16.
//
// Differences to IEEE arithmetic: terms below 2^-126 count as zero, so operands lose relative
// accuracy below 2^-102; a product with an infinity, or with a value above (2 - 2^-8) 2^127, gives
// NaN.
#include "kernels/cpu/gemm_amx.h"

#include "core/error.h"

#if defined(__x86_64__) && defined(__linux__)

#ifndef __clang__
// g++ 12 takes the intrinsics' deliberately undefined operands for mistakes.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

#define PRIMAL_AMX __attribute__((target("amx-tile,amx-bf16,avx512f")))

namespace primal::cpu {
namespace {

constexpr int64_t kTile = 16;          // rows and columns of an accumulator tile
constexpr int64_t kDepth = 32;         // inner dimension of a tile product
constexpr int64_t kPanel = 2 * kTile;  // rows of A, columns of B in a packed panel
constexpr int64_t kTileBytes = 1024;   // 16 rows of 64 bytes
// kDepth of a panel: [term][half] tiles.
template <int kTerms>
constexpr int64_t kStepBytes = kTerms * 2 * kTileBytes;
// A packed block of B fills about half of a second-level cache of 2 MiB; blocks of A pass by it.
constexpr int64_t kBlockRows = 128, kBlockColumns = 512, kBlockDepth = 384;

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

struct FreeAligned {
  void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
};

/// Room for packed panels, kept by the thread for its next product; 1.5 MiB at most.
std::byte* scratch(int64_t bytes) {
  thread_local std::unique_ptr<std::byte[], FreeAligned> memory;
  thread_local int64_t size = 0;
  if (bytes > size) {
    memory.reset();
    memory.reset(new (std::align_val_t{64}) std::byte[static_cast<std::size_t>(bytes)]);
    size = bytes;
  }
  return memory.get();
}

/// op(A), or op(B) transposed: `lines` rows (of op(A)) or columns (of op(B)) of length `depth`. A
/// tile of A has a line in each of its rows, a tile of B in each of its columns.
struct Operand {
  const float* data;
  int64_t stride, lines, depth;
  bool lines_contiguous;  // element (line, k) at data[k stride + line], else at data[line stride +
                          // k]
  bool transpose;         // the memory order is not that of the tile's rows
};

/// 16 x 16 floats in memory.
struct Square {
  const float* data;
  int64_t stride;
};

/// The square at x, with zeros, by way of `room`, for what lies outside of rows x columns.
PRIMAL_AMX inline Square padded(Square x, int64_t rows, int64_t columns, float* room) {
  if (rows >= kTile && columns >= kTile) return x;
  const auto mask = static_cast<__mmask16>((1u << std::clamp<int64_t>(columns, 0, kTile)) - 1u);
  for (int64_t r = 0; r < kTile; ++r) {
    const __m512 row =
        r < rows ? _mm512_maskz_loadu_ps(mask, x.data + r * x.stride) : _mm512_setzero_ps();
    _mm512_store_ps(room + r * kTile, row);
  }
  return {room, kTile};
}

/// Transposed x. Lane l of a register starts as four columns of row 4 l + i, which leaves
/// transposes of 4 x 4 within lanes.
PRIMAL_AMX inline Square transposed(Square x, float* room) {
  for (int64_t j = 0; j < kTile; j += 4) {
    __m512i row[4];
    for (int64_t i = 0; i < 4; ++i) {
      const auto quad = [&](int64_t l) __attribute__((always_inline)) {
        return x.data + (4 * l + i) * x.stride + j;
      };
      __m512i r =
          _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(quad(0))));
      r = _mm512_mask_broadcast_i32x4(r, 0x00f0,
                                      _mm_loadu_si128(reinterpret_cast<const __m128i*>(quad(1))));
      r = _mm512_mask_broadcast_i32x4(r, 0x0f00,
                                      _mm_loadu_si128(reinterpret_cast<const __m128i*>(quad(2))));
      row[i] = _mm512_mask_broadcast_i32x4(
          r, 0xf000, _mm_loadu_si128(reinterpret_cast<const __m128i*>(quad(3))));
    }
    const __m512i low0 = _mm512_unpacklo_epi32(row[0], row[1]);
    const __m512i low1 = _mm512_unpacklo_epi32(row[2], row[3]);
    const __m512i high0 = _mm512_unpackhi_epi32(row[0], row[1]);
    const __m512i high1 = _mm512_unpackhi_epi32(row[2], row[3]);
    float* out = room + j * kTile;
    _mm512_store_si512(out, _mm512_unpacklo_epi64(low0, low1));
    _mm512_store_si512(out + kTile, _mm512_unpackhi_epi64(low0, low1));
    _mm512_store_si512(out + 2 * kTile, _mm512_unpacklo_epi64(high0, high1));
    _mm512_store_si512(out + 3 * kTile, _mm512_unpackhi_epi64(high0, high1));
  }
  return {room, kTile};
}

/// The nearest bfloat16 of each value, ties to even, as a float; see round_to_bf16().
PRIMAL_AMX inline __m512i nearest(__m512i x) {
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(x, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan =
      _mm512_cmp_ps_mask(_mm512_castsi512_ps(x), _mm512_castsi512_ps(x), _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(rounded, nan, x, _mm512_set1_epi32(0x00400000));
}

/// The next bfloat16 term of each value, as a float, rounded half away from zero.
PRIMAL_AMX inline __m512i term(__m512i x) {
  return _mm512_and_si512(_mm512_add_epi32(x, _mm512_set1_epi32(0x8000)),
                          _mm512_set1_epi32(static_cast<int>(0xffff0000)));
}

PRIMAL_AMX inline __m512i subtract(__m512i x, __m512i y) {
  return _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(y)));
}

/// One tile of each term. The unit multiplies pairs of adjacent bfloat16; as any order along the
/// inner dimension will do, element p is paired with element p + 16, so that a pair needs no
/// shuffle.
template <int kTerms>
PRIMAL_AMX void pack_tile(const Operand& x, int64_t line, int64_t k, std::byte* out) {
  alignas(64) float low_room[2][kTile * kTile], high_room[2][kTile * kTile];
  const int64_t lines = x.lines - line, depth = x.depth - k;
  Square low{}, high{};
  if (x.lines_contiguous) {
    const float* source = x.data + k * x.stride + line;
    low = padded({source, x.stride}, depth, lines, low_room[0]);
    high = padded({source + kTile * x.stride, x.stride}, depth - kTile, lines, high_room[0]);
  } else {
    const float* source = x.data + line * x.stride + k;
    low = padded({source, x.stride}, lines, depth, low_room[0]);
    high = padded({source + kTile, x.stride}, lines, depth - kTile, high_room[0]);
  }
  if (x.transpose) {
    low = transposed(low, low_room[1]);
    high = transposed(high, high_room[1]);
  }
  const __m512i upper_half = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  for (int64_t r = 0; r < kTile; ++r) {
    __m512i a = _mm512_loadu_si512(low.data + r * low.stride);
    __m512i b = _mm512_loadu_si512(high.data + r * high.stride);
    if constexpr (kTerms == 1) {
      a = nearest(a);
      b = nearest(b);
    }
    for (int64_t t = 0; t < kTerms; ++t) {
      // What is left for the last term has no more than its bits.
      const __m512i a_term = t + 1 < kTerms ? term(a) : a, b_term = t + 1 < kTerms ? term(b) : b;
      const __m512i pair =
          _mm512_or_si512(_mm512_srli_epi32(a_term, 16), _mm512_and_si512(b_term, upper_half));
      _mm512_store_si512(out + t * 2 * kTileBytes + r * 64, pair);
      a = subtract(a, a_term);
      b = subtract(b, b_term);
    }
  }
}

/// Packs lines [first, last), panel behind panel, along the whole depth of x. Goes along the memory
/// order of x.
template <int kTerms>
PRIMAL_AMX void pack_panels(const Operand& x, int64_t first, int64_t last, std::byte* out) {
  const int64_t tiles = ceil_div(last - first, kTile), steps = ceil_div(x.depth, kDepth);
  const auto pack = [&](int64_t tile, int64_t step) {
    const int64_t place = (tile / 2 * steps + step) * kStepBytes<kTerms> + tile % 2 * kTileBytes;
    pack_tile<kTerms>(x, first + tile * kTile, step * kDepth, out + place);
  };
  if (x.lines_contiguous) {
    for (int64_t s = 0; s < steps; ++s) {
      for (int64_t t = 0; t < tiles; ++t) pack(t, s);
    }
  } else {
    for (int64_t t = 0; t < tiles; ++t) {
      for (int64_t s = 0; s < steps; ++s) pack(t, s);
    }
  }
}

/// Adds the products of the tile pairs in registers a (4, 5) and b (6, 7) to accumulators 0 to 3.
template <int kRows, int kColumns>
PRIMAL_AMX inline void multiply() {
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kColumns == 2) _tile_dpbf16ps(1, 4, 7);
  if constexpr (kRows == 2) _tile_dpbf16ps(2, 5, 6);
  if constexpr (kRows == 2 && kColumns == 2) _tile_dpbf16ps(3, 5, 7);
}

template <int kRows>
PRIMAL_AMX inline void load_a(const std::byte* step, int t) {
  _tile_loadd(4, step + t * 2 * kTileBytes, 64);
  if constexpr (kRows == 2) _tile_loadd(5, step + t * 2 * kTileBytes + kTileBytes, 64);
}

template <int kColumns>
PRIMAL_AMX inline void load_b(const std::byte* step, int t) {
  _tile_loadd(6, step + t * 2 * kTileBytes, 64);
  if constexpr (kColumns == 2) _tile_loadd(7, step + t * 2 * kTileBytes + kTileBytes, 64);
}

/// out (kRows 16, kColumns 16), with rows of kPanel floats, = the product of two panels.
template <int kTerms, int kRows, int kColumns>
PRIMAL_AMX void multiply_panels(const std::byte* a, const std::byte* b, int64_t steps, float* out) {
  _tile_zero(0);
  if constexpr (kColumns == 2) _tile_zero(1);
  if constexpr (kRows == 2) _tile_zero(2);
  if constexpr (kRows == 2 && kColumns == 2) _tile_zero(3);
  for (int64_t s = 0; s < steps; ++s, a += kStepBytes<kTerms>, b += kStepBytes<kTerms>) {
    if constexpr (kTerms == 1) {
      load_a<kRows>(a, 0);
      load_b<kColumns>(b, 0);
      multiply<kRows, kColumns>();
      continue;
    }
    // Each pair of terms differs from the one before in one operand, but for the last.
    load_a<kRows>(a, 2);
    load_b<kColumns>(b, 0);
    multiply<kRows, kColumns>();
    load_a<kRows>(a, 1);
    multiply<kRows, kColumns>();
    load_b<kColumns>(b, 1);
    multiply<kRows, kColumns>();
    load_a<kRows>(a, 0);
    multiply<kRows, kColumns>();
    load_b<kColumns>(b, 2);
    multiply<kRows, kColumns>();
    load_b<kColumns>(b, 0);
    multiply<kRows, kColumns>();
  }
  constexpr int kStride = kPanel * sizeof(float);
  _tile_stored(0, out, kStride);
  if constexpr (kColumns == 2) _tile_stored(1, out + kTile, kStride);
  if constexpr (kRows == 2) _tile_stored(2, out + kTile * kPanel, kStride);
  if constexpr (kRows == 2 && kColumns == 2) {
    _tile_stored(3, out + kTile * kPanel + kTile, kStride);
  }
}

/// C = alpha sum + beta C + bias for `rows` x `columns` values of C.
PRIMAL_AMX void update(const float* sum, int64_t rows, int64_t columns, float alpha, float beta,
                       const float* bias, float* c, int64_t ldc) {
  const __m512 scale = _mm512_set1_ps(alpha), keep = _mm512_set1_ps(beta);
  const auto mask = static_cast<__mmask32>((uint64_t{1} << columns) - 1);
  const auto left = static_cast<__mmask16>(mask), right = static_cast<__mmask16>(mask >> kTile);
  __m512 shift_left = _mm512_setzero_ps(), shift_right = _mm512_setzero_ps();
  if (bias) {
    shift_left = _mm512_maskz_loadu_ps(left, bias);
    shift_right = _mm512_maskz_loadu_ps(right, bias + kTile);
  }
  for (int64_t i = 0; i < rows; ++i, c += ldc, sum += kPanel) {
    __m512 x = shift_left, y = shift_right;
    if (beta != 0) {
      x = _mm512_fmadd_ps(keep, _mm512_maskz_loadu_ps(left, c), x);
      y = _mm512_fmadd_ps(keep, _mm512_maskz_loadu_ps(right, c + kTile), y);
    }
    x = _mm512_fmadd_ps(scale, _mm512_load_ps(sum), x);
    _mm512_mask_storeu_ps(c, left, x);
    if (right == 0) continue;
    y = _mm512_fmadd_ps(scale, _mm512_load_ps(sum + kTile), y);
    _mm512_mask_storeu_ps(c + kTile, right, y);
  }
}

/// Layout of the tile registers: palette 1, all eight of 16 rows of 64 bytes.
struct alignas(64) TileLayout {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileLayout kTileLayout;

/// Adds the product of one panel of A and all panels of B to the rows of C at g.c.
template <int kTerms>
PRIMAL_AMX void multiply_panel(const GemmArgs& g, const std::byte* a, const std::byte* b) {
  alignas(64) float sum[kPanel * kPanel];
  const int64_t steps = ceil_div(g.k, kDepth);
  // The compiler does not see the tile loads read the packed panels.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  for (int64_t j = 0; j < g.n; j += kPanel, b += steps * kStepBytes<kTerms>) {
    const int64_t columns = std::min(kPanel, g.n - j);
    float* const c = g.c + j;
    for (int64_t i = 0; i < g.m; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(c + i * g.ldc), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(c + i * g.ldc + columns - 1), _MM_HINT_T0);
    }
    if (g.m > kTile && columns > kTile) {
      multiply_panels<kTerms, 2, 2>(a, b, steps, sum);
    } else if (g.m > kTile) {
      multiply_panels<kTerms, 2, 1>(a, b, steps, sum);
    } else if (columns > kTile) {
      multiply_panels<kTerms, 1, 2>(a, b, steps, sum);
    } else {
      multiply_panels<kTerms, 1, 1>(a, b, steps, sum);
    }
    update(sum, g.m, columns, g.alpha, g.beta, g.bias ? g.bias + j : nullptr, c, g.ldc);
  }
}

bool detect() {
  unsigned eax, ebx, ecx, edx;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  const bool amx_bf16 = edx >> 22 & 1, amx_tile = edx >> 24 & 1, avx512f = ebx >> 16 & 1;
  if (!amx_bf16 || !amx_tile || !avx512f) return false;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx >> 27 & 1)) return false;
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kStates = 0x600e6;  // SSE, AVX, AVX-512, tile configuration, tile data
  if ((low & kStates) != kStates) return false;
  // The kernel grants a process the large tile state on request (ARCH_REQ_XCOMP_PERM).
  constexpr long kRequest = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

}  // namespace

bool amx_available() {
  static const bool available = detect();
  return available;
}

namespace {

template <int kTerms>
PRIMAL_AMX void product(const GemmArgs& g) {
  // Equal blocks along k, of whole tiles.
  const int64_t depth = ceil_div(ceil_div(g.k, ceil_div(g.k, kBlockDepth)), kDepth) * kDepth;
  const int64_t panel_bytes = depth / kDepth * kStepBytes<kTerms>;
  const int64_t a_panels = ceil_div(std::min(g.m, kBlockRows), kPanel);
  const int64_t b_panels = ceil_div(std::min(g.n, kBlockColumns), kPanel);
  std::byte* const a_packed = scratch((a_panels + b_panels) * panel_bytes);
  std::byte* const b_packed = a_packed + a_panels * panel_bytes;
  _tile_loadconfig(&kTileLayout);
  GemmArgs block = g;
  for (int64_t j = 0; j < g.n; j += kBlockColumns) {
    block.n = std::min(kBlockColumns, g.n - j);
    for (int64_t k = 0; k < g.k; k += depth) {
      block.k = std::min(depth, g.k - k);
      block.beta = k == 0 ? g.beta : 1;
      block.bias = g.bias && k == 0 ? g.bias + j : nullptr;
      const float* const b_block = g.b + (g.trans_b ? j * g.ldb + k : k * g.ldb + j);
      const Operand b{b_block, g.ldb, block.n, block.k, !g.trans_b, g.trans_b};
      pack_panels<kTerms>(b, 0, block.n, b_packed);
      const Operand a{g.a + (g.trans_a ? k * g.lda : k), g.lda, g.m, block.k, g.trans_a, g.trans_a};
      for (int64_t first = 0; first < g.m; first += kBlockRows) {
        const int64_t last = std::min(first + kBlockRows, g.m);
        pack_panels<kTerms>(a, first, last, a_packed);
        const std::byte* panel = a_packed;
        for (int64_t i = first; i < last; i += kPanel) {
          block.m = std::min(kPanel, last - i);
          block.c = g.c + i * g.ldc + j;
          multiply_panel<kTerms>(block, panel, b_packed);
          panel += ceil_div(block.k, kDepth) * kStepBytes<kTerms>;
        }
      }
    }
  }
  _tile_release();
}

}  // namespace

void gemm_amx(const GemmArgs& g) {
  product<3>(g);
}

void gemm_amx_bf16(const GemmArgs& g) {
  product<1>(g);
}

}  // namespace primal::cpu

#else

namespace primal::cpu {

bool amx_available() {
  return false;
}

void gemm_amx(const GemmArgs&) {
  fail("[gemm] this build has no code for AMX");
}

void gemm_amx_bf16(const GemmArgs& g) {
  gemm_amx(g);
}

}  // namespace primal::cpu

#endif
