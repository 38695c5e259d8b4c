#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace primal {

/// A failure with one clear line: the op, file, line or key in front, what was expected, what was
/// found. `main` prints it and exits 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Wrong use of a command line (unknown flag, bad value): `main` prints it and exits 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// Throws Error with a formatted message, e.g. `fail("[softmax] rank must be >= 1, got {}", rank)`.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace primal
