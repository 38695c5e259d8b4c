#pragma once

#include <span>
#include <string_view>

#include "experiments/recipe.h"

namespace primal {

/// The published hyper-parameters of a data set (Chen et al., NeurIPS 2023) and its sizes in the
/// archive.
struct UeaRecipe {
  std::string_view name;
  int length;
  int channels;
  int classes;
  RecipeValues primal;       ///< Primal-Attention in every layer
  RecipeValues primal_plus;  ///< in the last layer only
};

std::span<const UeaRecipe> uea_recipes();

/// nullptr when there is none for that data set.
const UeaRecipe* find_uea_recipe(std::string_view name);

}  // namespace primal
