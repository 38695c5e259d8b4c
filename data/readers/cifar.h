#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace primal {

/// Calls f(pixels, label) for each picture of a file of CIFAR-10's binary form: 1024 grey values,
/// row by row, and a class from 0 to 9. `name` of the file is used in messages. Error when the
/// bytes are no whole number of pictures, or at a picture of another class.
void for_cifar_pictures(std::string_view bytes, std::string_view name,
                        const std::function<void(std::string_view, int32_t)>& f);

}  // namespace primal
