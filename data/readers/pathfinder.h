#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace primal {

/// Calls f(picture, label) for each picture of a Pathfinder list: columns folder, file, index,
/// label and others, as lines of text with blanks between, which the Long Range Arena's release has
/// under the name N.npy, or as what that name says, a NumPy array of texts (rows, columns), which
/// the generator of the pictures writes. `picture` is folder/file; `name` of the list is used in
/// messages. Error, with line or row, when columns are missing or the label is neither 0 nor 1, and
/// for an array of anything but texts.
void for_pathfinder_pictures(std::string_view bytes, std::string_view name,
                             const std::function<void(const std::string&, int32_t)>& f);

}  // namespace primal
