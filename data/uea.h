#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "data/readers/ts.h"

namespace primal {

enum class Normalization { kNone, kStandardization };
enum class Protocol { kValidation, kPaper };
enum class MissingPolicy { kError, kZero, kMean, kLinear };
enum class SplitName { kTrain, kValidation, kTest };

std::string_view name_of(SplitName split);
/// "train", "validation" or "test"; throws UsageError for any other word.
SplitName split_named(std::string_view word);

/// The `data` section of a UEA recipe. docs/uea.md explains each choice.
struct UeaDataConfig {
  std::string root = "data/Multivariate_ts";
  std::string name;
  Normalization normalization = Normalization::kStandardization;
  Protocol protocol = Protocol::kValidation;
  double validation_fraction = 0.2;
  MissingPolicy missing = MissingPolicy::kLinear;

  void fields(Fields& f);
};

/// What a trained model needs to see data as it did in training; stored in the checkpoint, so that
/// evaluation alone repeats the training run's scaling, class ids and split.
struct UeaStatistics {
  std::string name;
  std::vector<std::string> classes;  // class id -> label, sorted as byte strings
  int64_t channels = 0;
  int64_t max_length = 0;  // longest case of TRAIN and TEST: the model's width
  Normalization normalization = Normalization::kStandardization;
  MissingPolicy missing = MissingPolicy::kLinear;
  Protocol protocol = Protocol::kValidation;
  double validation_fraction = 0.2;
  uint64_t seed = 0;          // of the validation split
  std::vector<double> means;  // per channel, over the observed cells of the fitted cases
  std::vector<double> stds;   // with n - 1; 0 for a channel that is constant in training
  std::string train_checksum, test_checksum;
};

void to_json(nlohmann::json& json, const UeaStatistics& statistics);
void from_json(const nlohmann::json& json, UeaStatistics& statistics);

/// A batch on the host. Rows of `x` at and after a case's length are zeros.
struct UeaBatch {
  int64_t size = 0, length = 0, channels = 0;  // B, N, F
  std::vector<float> x;                        // (B, N, F)
  std::vector<int32_t> lengths;                // (B)
  std::vector<int32_t> labels;                 // (B)
};

/// Cases ready for the model: gaps filled, normalised, labels as class ids.
struct UeaSplit {
  struct Case {
    int64_t length = 0;
    std::vector<float> values;  // (length, channels)
    int32_t label = 0;
    int64_t line = 0;  // in the file it came from
  };

  int64_t channels = 0;
  std::vector<Case> cases;
  nlohmann::json file;  // facts of the file they came from, of data/inspect.h

  int64_t size() const { return static_cast<int64_t>(cases.size()); }
  /// Fills `batch` (its memory is reused) with the given cases, padded with zeros to
  /// `padded_length` time steps. Throws if an index is out of range or a case is longer.
  void fill_batch(std::span<const int64_t> indices, int64_t padded_length, UeaBatch& batch) const;
};

struct UeaData {
  UeaSplit train, validation, test;  // validation is empty under Protocol::kPaper
  UeaStatistics statistics;
  std::vector<std::string> warnings;
};

/// The two files of a data set, NAME_TRAIN.ts and NAME_TEST.ts, in the first of root/NAME,
/// root/NAME/*, root and root/* that holds one of them. Throws if none does, listing the data sets
/// that are there.
struct UeaPaths {
  std::filesystem::path train, test;
};
UeaPaths find_uea(const std::filesystem::path& root, const std::string& name);

/// Reads both files. Class ids and statistics come from TRAIN alone: from all of it under
/// Protocol::kPaper, from what the validation split leaves under Protocol::kValidation. The split
/// is stratified and a function of file, fraction and seed.
UeaData load_uea(const UeaDataConfig& config, uint64_t seed);

/// One split for a trained model: `config` says where the data are, `statistics` everything else.
/// Refuses a file whose channels, labels or lengths do not fit the model. Appends to `warnings`.
UeaSplit load_uea_split(const UeaDataConfig& config, const UeaStatistics& statistics,
                        SplitName split, std::vector<std::string>& warnings);

/// Ascending positions of the validation cases, given each case's class id: from every class about
/// `fraction` of its cases, at least one and never all; a class with a single case gives none.
std::vector<int64_t> choose_validation(std::span<const int32_t> labels, double fraction,
                                       uint64_t seed);

}  // namespace primal
