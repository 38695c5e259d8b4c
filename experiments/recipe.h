#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "layers/encoder.h"

namespace primal {

/// A published model of two layers: what the key `recipe` fills in. Keys that are given win.
enum class Recipe : uint8_t { none, canonical, primal, primal_plus };

/// What a recipe decides for one data set.
struct RecipeValues {
  int64_t rank = 0;
  double eta = 0;
  int64_t rank_multi = 0;
};

/// The key `recipe`.
void recipe_field(Fields& f, Recipe& recipe);

/// The attention kind of each of the recipe's layers.
std::vector<std::string_view> recipe_kinds(Recipe recipe);

/// Fills in the layers, and eta where the recipe has primal ones.
void apply_recipe(Recipe recipe, const RecipeValues& values, std::vector<LayerConfig>& layers,
                  double& eta);

/// Error when the layers are not the recipe's: a run must not be recorded as what it is not.
void check_recipe(Recipe recipe, const std::vector<LayerConfig>& layers);

}  // namespace primal
