#include "experiments/recipe.h"

#include <fmt/ranges.h>

#include "core/error.h"

namespace primal {

void recipe_field(Fields& f, Recipe& recipe) {
  f.choice("recipe", recipe,
           {{"none", Recipe::none},
            {"canonical", Recipe::canonical},
            {"primal", Recipe::primal},
            {"primal_plus", Recipe::primal_plus}},
           "fills in layers and ksvd.eta as published for data.name; explicit keys win");
}

std::vector<std::string_view> recipe_kinds(Recipe recipe) {
  const std::string_view first = recipe == Recipe::primal ? "primal" : "canonical";
  return {first, recipe == Recipe::canonical ? "canonical" : "primal"};
}

void apply_recipe(Recipe recipe, const RecipeValues& values, std::vector<LayerConfig>& layers,
                  double& eta) {
  layers.clear();
  for (const std::string_view kind : recipe_kinds(recipe)) layers.emplace_back(kind);
  if (recipe == Recipe::canonical) return;
  for (LayerConfig& layer : layers) {
    if (layer.attention->kind() != "primal") continue;
    read_config(ConfigSource::from_string(
                    fmt::format("attention: {{kind: primal, rank: {}, rank_multi: {}}}",
                                values.rank, values.rank_multi),
                    "recipe"),
                layer);
  }
  eta = values.eta;
}

void check_recipe(Recipe recipe, const std::vector<LayerConfig>& layers) {
  if (recipe == Recipe::none) return;
  std::vector<std::string_view> kinds;
  for (const LayerConfig& layer : layers) kinds.push_back(layer.attention->kind());
  if (kinds == recipe_kinds(recipe)) return;
  fail("recipe: its layers are {}, but model.layers lists {}; leave one of the two out",
       fmt::join(recipe_kinds(recipe), ", "), fmt::join(kinds, ", "));
}

}  // namespace primal
