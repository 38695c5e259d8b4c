#include "experiments/uea/recipes.h"

#include <algorithm>

namespace primal {

std::span<const UeaRecipe> uea_recipes() {
  static constexpr UeaRecipe kRecipes[] = {
      {"EthanolConcentration", 1751, 3, 4, {30, .1, 10}, {40, .2, 10}},
      {"FaceDetection", 62, 144, 2, {20, .1, 5}, {40, .2, 5}},
      {"Handwriting", 152, 3, 26, {30, .2, 5}, {20, .5, 5}},
      {"Heartbeat", 405, 61, 2, {30, .5, 10}, {40, .5, 10}},
      {"JapaneseVowels", 29, 12, 9, {40, .5, 5}, {30, .2, 5}},
      {"PEMS-SF", 144, 963, 7, {40, .1, 5}, {40, 0, 5}},
      {"SelfRegulationSCP1", 896, 6, 2, {30, .5, 10}, {30, .2, 10}},
      {"SelfRegulationSCP2", 1152, 7, 2, {20, 0, 10}, {20, .2, 10}},
      {"SpokenArabicDigits", 93, 13, 10, {20, .1, 5}, {30, .2, 5}},
      {"UWaveGestureLibrary", 315, 3, 8, {20, 0, 10}, {40, .1, 10}},
  };
  return kRecipes;
}

const UeaRecipe* find_uea_recipe(std::string_view name) {
  const auto recipes = uea_recipes();
  const auto found = std::ranges::find(recipes, name, &UeaRecipe::name);
  return found == recipes.end() ? nullptr : &*found;
}

}  // namespace primal
