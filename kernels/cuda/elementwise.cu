#include "kernels/cuda/each.h"

// Kernels in which every element is read and written once: they run at the speed of the memory.

namespace primal::PRIMAL_DEVICE {
namespace {

struct Fill {
  float value;
  float* out;
  __device__ void operator()(int64_t i) const { out[i] = value; }
};

struct Copy {
  const float* x;
  float* out;
  __device__ void operator()(int64_t i) const { out[i] = x[i]; }
};

struct Scale {
  float factor;
  const float* x;
  float* out;
  bool accumulate;
  __device__ void operator()(int64_t i) const { put(out + i, factor * x[i], accumulate); }
};

struct AddPosition {
  int64_t count;
  float scale;
  const float* x;         // (batch, count)
  const float* position;  // (count)
  float* out;
  __device__ void operator()(int64_t i) const { out[i] = scale * x[i] + position[i % count]; }
};

struct Mask {
  const float* x;
  float* out;
  bool accumulate;
  __device__ void operator()(int64_t i, float factor) const {
    put(out + i, x[i] * factor, accumulate);
  }
};

struct AddMasked {
  const float* x;
  const float* y;
  float* out;
  __device__ void operator()(int64_t i, float factor) const { out[i] = x[i] + y[i] * factor; }
};

/// The standard normal distribution function.
__device__ float normal(float x) {
  return 0.5F * erfcf(-0.707106781F * x);
}

template <Activation kind>
struct Activate {
  const float* x;
  float* out;
  __device__ void operator()(int64_t i, float factor) const {
    const float v = x[i];
    out[i] = (kind == Activation::relu ? fmaxf(v, 0.0F) : v * normal(v)) * factor;
  }
};

template <Activation kind>
struct ActivateBackward {
  const float* x;
  const float* dy;
  float* dx;
  bool accumulate;
  __device__ void operator()(int64_t i, float factor) const {
    const float v = x[i];
    float slope = v > 0 ? 1.0F : 0.0F;
    if (kind == Activation::gelu) slope = normal(v) + v * 0.398942280F * expf(-0.5F * v * v);
    put(dx + i, slope * dy[i] * factor, accumulate);
  }
};

struct MaskPositions {
  int64_t length, width;
  const int32_t* lengths;
  const float* x;     // (batch, length, width)
  const float* bias;  // (width) or null
  float* out;
  bool accumulate;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / width;
    const float kept = row % length < lengths[row / length] ? x[i] : 0.0F;
    put(out + i, bias != nullptr ? kept + bias[i % width] : kept, accumulate);
  }
};

struct Adam {
  AdamStep step;
  const float* factor;
  const float* gradient;
  float* first;
  float* second;
  float* value;
  __device__ void operator()(int64_t i) const {
    const float scale = *factor;
    if (scale != scale) return;  // NaN
    const float g = scale * gradient[i] + step.l2 * value[i];
    const float m = step.beta1 * first[i] + (1 - step.beta1) * g;
    const float v = step.beta2 * second[i] + (1 - step.beta2) * g * g;
    first[i] = m;
    second[i] = v;
    const float direction = step.adaptive ? m / (step.second_scale * sqrtf(v) + step.eps) : m;
    value[i] = step.decay * value[i] - step.step_size * direction;
  }
};

}  // namespace

void fill(const Exec& exec, int64_t n, float value, float* out) {
  each(exec, n, Fill{value, out});
}

void copy(const Exec& exec, int64_t n, const float* x, float* out) {
  each(exec, n, Copy{x, out});
}

void add(const Exec& exec, int64_t n, const float* x, float* out) {
  each(exec, n, Scale{1, x, out, true});
}

void scale(const Exec& exec, int64_t n, float factor, const float* x, float* out, bool accumulate) {
  each(exec, n, Scale{factor, x, out, accumulate});
}

void add_position(const Exec& exec, int64_t batch, int64_t count, float scale, const float* x,
                  const float* position, float* out) {
  each(exec, batch * count, AddPosition{count, scale, x, position, out});
}

void dropout(const Exec& exec, int64_t n, Dropout d, const float* x, float* out, bool accumulate) {
  each_masked(exec, n, d, Mask{x, out, accumulate});
}

void activation(const Exec& exec, int64_t n, Activation kind, Dropout d, const float* x,
                float* out) {
  if (kind == Activation::gelu) {
    each_masked(exec, n, d, Activate<Activation::gelu>{x, out});
  } else {
    each_masked(exec, n, d, Activate<Activation::relu>{x, out});
  }
}

void activation_backward(const Exec& exec, int64_t n, Activation kind, Dropout d, const float* x,
                         const float* dy, float* dx, bool accumulate) {
  if (kind == Activation::gelu) {
    each_masked(exec, n, d, ActivateBackward<Activation::gelu>{x, dy, dx, accumulate});
  } else {
    each_masked(exec, n, d, ActivateBackward<Activation::relu>{x, dy, dx, accumulate});
  }
}

void add_dropout(const Exec& exec, int64_t n, Dropout d, const float* x, const float* y,
                 float* out) {
  each_masked(exec, n, d, AddMasked{x, y, out});
}

void mask_positions(const Exec& exec, int64_t batch, int64_t length, int64_t width,
                    const int32_t* lengths, const float* x, const float* bias, float* out,
                    bool accumulate) {
  each(exec, batch * length * width,
       MaskPositions{length, width, lengths, x, bias, out, accumulate});
}

void adam(const Exec& exec, int64_t n, const AdamStep& step, const float* factor,
          const float* gradient, float* first, float* second, float* value) {
  each(exec, n, Adam{step, factor, gradient, first, second, value});
}

}  // namespace primal::PRIMAL_DEVICE
