#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace primal {

/// The rules of the Long Range Arena's ListOps release (Tay et al., 2021).
struct ListOpsRules {
  int max_depth = 10;      ///< an operator's depth is below; the root's is 1
  int max_arguments = 10;  ///< of an operator, from 2 on, all numbers equally likely
  double operator_share = 0.25;
  int min_length = 500;  ///< symbols, brackets of operators included; both bounds are excluded
  int max_length = 2000;
};

struct ListOpsOptions {
  uint64_t seed = 1;
  int64_t train = 96000;
  int64_t validation = 2000;
  int64_t test = 2000;
  ListOpsRules rules;
  bool overwrite = false;
};

/// One expression as the release prints it, `( ( ( [MAX 4 ) 3 ) ] )`, and its value; empty when the
/// draw breaks the rules' bounds on length.
struct ListOpsExample {
  std::string text;
  int value = 0;
};
/// Draw number `draw` of a seed: a function of the arguments alone.
ListOpsExample draw_listops(const ListOpsRules& rules, uint64_t seed, uint64_t draw);

/// Writes basic_train.tsv, basic_val.tsv and basic_test.tsv, without an expression twice, to
/// `folder`/listops-1000 and returns their paths. The same options give the same bytes, for any
/// number of threads. Error when a file is there already and overwrite is not set.
std::vector<std::filesystem::path> generate_listops(const ListOpsOptions& options,
                                                    const std::filesystem::path& folder);

}  // namespace primal
