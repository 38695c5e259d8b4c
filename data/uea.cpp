#include "data/uea.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <system_error>

#include "core/error.h"
#include "core/rng.h"
#include "data/inspect.h"

namespace primal {
namespace {

namespace fs = std::filesystem;

template <class E>
using Words = std::initializer_list<std::pair<std::string_view, E>>;

const Words<Normalization> kNormalizations = {{"standardization", Normalization::kStandardization},
                                              {"none", Normalization::kNone}};
const Words<Protocol> kProtocols = {{"validation", Protocol::kValidation},
                                    {"paper", Protocol::kPaper}};
const Words<MissingPolicy> kMissingPolicies = {{"error", MissingPolicy::kError},
                                               {"zero", MissingPolicy::kZero},
                                               {"mean", MissingPolicy::kMean},
                                               {"linear", MissingPolicy::kLinear}};
const Words<SplitName> kSplits = {{"train", SplitName::kTrain},
                                  {"validation", SplitName::kValidation},
                                  {"test", SplitName::kTest}};

template <class E>
std::string_view word_of(Words<E> table, E value) {
  for (const auto& [word, e] : table) {
    if (e == value) return word;
  }
  fail("uea: a choice outside its table");
}

template <class E>
E value_of(Words<E> table, const nlohmann::json& json, std::string_view key) {
  const auto word = json.at(std::string(key)).get<std::string>();
  for (const auto& [known, e] : table) {
    if (known == word) return e;
  }
  fail("uea: stored statistics: {} is '{}', which is not known", key, word);
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    std::error_code no_status;
    if (it->is_directory(no_status)) out.push_back(it->path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

// Names of the data sets that stand in or below `root`, by their file names.
std::set<std::string> names_below(const fs::path& root, int depth) {
  constexpr std::string_view kEndings[] = {"_TRAIN.ts", "_TEST.ts"};
  std::set<std::string> names;
  std::error_code code;
  for (fs::directory_iterator it(root, code), end; !code && it != end; it.increment(code)) {
    const std::string file = it->path().filename().string();
    for (const std::string_view ending : kEndings) {
      if (file.ends_with(ending)) names.insert(file.substr(0, file.size() - ending.size()));
    }
  }
  if (depth > 0) {
    for (const fs::path& folder : folders_in(root)) names.merge(names_below(folder, depth - 1));
  }
  return names;
}

int32_t class_id(const std::vector<std::string>& classes, const TimeSeriesFile& file,
                 const TimeSeriesCase& row) {
  const auto place = std::lower_bound(classes.begin(), classes.end(), row.label);
  if (place == classes.end() || *place != row.label) {
    fail("uea: {}:{}: label '{}' was not seen in training; known labels: {}", file.name, row.line,
         row.label, list_names(classes));
  }
  return static_cast<int32_t>(place - classes.begin());
}

int64_t longest(const TimeSeriesFile& file) {
  int64_t length = 0;
  for (const TimeSeriesCase& row : file.cases) length = std::max(length, row.length);
  return length;
}

// Mean and (n-1) standard deviation of each channel over all observed cells of the chosen cases.
void fit(const TimeSeriesFile& file, std::span<const int64_t> chosen, UeaStatistics& statistics,
         std::vector<std::string>& warnings) {
  const auto channels = static_cast<size_t>(file.channels);
  std::vector<double> sums(channels), squares(channels);
  std::vector<int64_t> counts(channels);
  std::vector<float> lows(channels, std::numeric_limits<float>::infinity());
  std::vector<float> highs(channels, -std::numeric_limits<float>::infinity());
  const auto for_each_cell = [&](const auto& visit) {
    for (const int64_t i : chosen) {
      const std::vector<float>& values = file.cases[static_cast<size_t>(i)].values;
      for (size_t k = 0; k < values.size(); ++k) {
        if (!std::isnan(values[k])) visit(k % channels, values[k]);
      }
    }
  };
  for_each_cell([&](size_t c, float value) {
    sums[c] += value;
    ++counts[c];
    lows[c] = std::min(lows[c], value);
    highs[c] = std::max(highs[c], value);
  });
  statistics.means.assign(channels, 0.0);
  statistics.stds.assign(channels, 0.0);
  for (size_t c = 0; c < channels; ++c) {
    if (counts[c] == 0) {
      warnings.push_back(
          fmt::format("uea: {}: channel {} has no value in training", file.name, c + 1));
    } else if (lows[c] == highs[c]) {
      warnings.push_back(
          fmt::format("uea: {}: channel {} is {} in all of training; it is centred, not scaled",
                      file.name, c + 1, lows[c]));
      statistics.means[c] = lows[c];
    } else {
      statistics.means[c] = sums[c] / static_cast<double>(counts[c]);
    }
  }
  for_each_cell([&](size_t c, float value) {
    const double difference = value - statistics.means[c];
    squares[c] += difference * difference;
  });
  for (size_t c = 0; c < channels; ++c) {
    if (lows[c] < highs[c]) {
      statistics.stds[c] = std::sqrt(squares[c] / static_cast<double>(counts[c] - 1));
    }
  }
}

// Replaces the NaNs of one channel of one case, in the units of the file.
void fill_missing(std::vector<float>& values, size_t channel, size_t channels, MissingPolicy policy,
                  double mean) {
  const size_t length = values.size() / channels;
  const auto cell = [&](size_t t) -> float& { return values[t * channels + channel]; };
  if (policy != MissingPolicy::kLinear) {
    const float constant = policy == MissingPolicy::kZero ? 0.0f : static_cast<float>(mean);
    for (size_t t = 0; t < length; ++t) {
      if (std::isnan(cell(t))) cell(t) = constant;
    }
    return;
  }
  // A straight line between the observed neighbours of each gap; the first and last observed value
  // extend to the ends. A channel without any value takes the training mean.
  constexpr auto kNone = static_cast<size_t>(-1);
  size_t last = kNone;
  for (size_t t = 0; t <= length; ++t) {
    if (t < length && std::isnan(cell(t))) continue;
    const size_t gap = last == kNone ? 0 : last + 1;
    for (size_t k = gap; k < t; ++k) {
      if (last == kNone) {
        cell(k) = t < length ? cell(t) : static_cast<float>(mean);
      } else if (t == length) {
        cell(k) = cell(last);
      } else {
        const double share = static_cast<double>(k - last) / static_cast<double>(t - last);
        cell(k) = static_cast<float>((1 - share) * cell(last) + share * cell(t));
      }
    }
    last = t;
  }
}

void refuse_missing(const TimeSeriesFile& file, const TimeSeriesCase& row, size_t cell) {
  const auto channels = static_cast<size_t>(file.channels);
  fail(
      "uea: {}:{}: channel {}, time step {} is missing, and data.missing is error; "
      "choose zero, mean or linear",
      file.name, row.line, cell % channels + 1, cell / channels + 1);
}

// Fills gaps and normalises: x -> (x - mean) / (std + eps).
UeaSplit prepare(const TimeSeriesFile& file, std::span<const int64_t> chosen,
                 const UeaStatistics& statistics) {
  constexpr double kEpsilon = std::numeric_limits<float>::epsilon();
  const auto channels = static_cast<size_t>(file.channels);
  UeaSplit split;
  split.channels = file.channels;
  split.file = summarize(file);
  split.cases.reserve(chosen.size());
  for (const int64_t i : chosen) {
    const TimeSeriesCase& row = file.cases[static_cast<size_t>(i)];
    UeaSplit::Case out{row.length, row.values, class_id(statistics.classes, file, row), row.line};
    const auto gap = std::find_if(out.values.begin(), out.values.end(),
                                  [](float value) { return std::isnan(value); });
    if (gap != out.values.end()) {
      if (statistics.missing == MissingPolicy::kError) {
        refuse_missing(file, row, static_cast<size_t>(gap - out.values.begin()));
      }
      for (size_t c = 0; c < channels; ++c) {
        fill_missing(out.values, c, channels, statistics.missing, statistics.means[c]);
      }
    }
    if (statistics.normalization == Normalization::kStandardization) {
      for (size_t k = 0; k < out.values.size(); ++k) {
        const size_t c = k % channels;
        const double scale = statistics.stds[c] > 0 ? statistics.stds[c] + kEpsilon : 1.0;
        out.values[k] = static_cast<float>((out.values[k] - statistics.means[c]) / scale);
      }
    }
    split.cases.push_back(std::move(out));
  }
  return split;
}

std::vector<int64_t> all_cases(const TimeSeriesFile& file) {
  std::vector<int64_t> all(file.cases.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  return all;
}

struct Partition {
  std::vector<int64_t> train, validation;
};

Partition partition(const TimeSeriesFile& file, const UeaStatistics& statistics) {
  if (statistics.protocol == Protocol::kPaper) return {all_cases(file), {}};
  std::vector<int32_t> labels;
  for (const TimeSeriesCase& row : file.cases) {
    labels.push_back(class_id(statistics.classes, file, row));
  }
  Partition out;
  out.validation = choose_validation(labels, statistics.validation_fraction, statistics.seed);
  const std::vector<int64_t> all = all_cases(file);
  std::set_difference(all.begin(), all.end(), out.validation.begin(), out.validation.end(),
                      std::back_inserter(out.train));
  return out;
}

void report_missing(const TimeSeriesFile& file, MissingPolicy policy,
                    std::vector<std::string>& warnings) {
  if (file.missing_cells == 0 || policy == MissingPolicy::kError) return;
  warnings.push_back(fmt::format("uea: {}: {} missing {} filled (data.missing: {})", file.name,
                                 file.missing_cells, file.missing_cells == 1 ? "cell" : "cells",
                                 word_of(kMissingPolicies, policy)));
}

// Evaluation must see the file that the model knows, or at least one that fits it.
void check_fit(const TimeSeriesFile& file, const UeaStatistics& statistics) {
  if (file.channels != statistics.channels) {
    fail("uea: {}: {} channels, but the model was trained on {}", file.name, file.channels,
         statistics.channels);
  }
  for (const TimeSeriesCase& row : file.cases) {
    if (row.length > statistics.max_length) {
      fail("uea: {}:{}: length {}, but the model takes at most {}", file.name, row.line, row.length,
           statistics.max_length);
    }
  }
}

void append(std::vector<std::string>& to, const std::vector<std::string>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

std::string_view name_of(SplitName split) {
  return word_of(kSplits, split);
}

SplitName split_named(std::string_view word) {
  for (const auto& [known, split] : kSplits) {
    if (known == word) return split;
  }
  throw UsageError(fmt::format("split '{}' is not known; choose train, validation or test", word));
}

void UeaDataConfig::fields(Fields& f) {
  f.field("root", root, "folder of the archive; holds NAME/NAME_TRAIN.ts and NAME/NAME_TEST.ts");
  f.field("name", name, "data set, as in its file names");
  f.choice("normalization", normalization, kNormalizations,
           "standardization: (x - mean) / std per channel, fitted on the training cases");
  f.choice("protocol", protocol, kProtocols,
           "validation: a stratified part of TRAIN picks the best epoch; paper: train on all of "
           "TRAIN and also report the best test accuracy over the epochs");
  f.field("validation_fraction", validation_fraction,
          {.min = 0.0, .max = 1.0, .min_open = true, .max_open = true},
          "share of TRAIN held out under protocol validation");
  f.choice("missing", missing, kMissingPolicies,
           "missing cells: refuse them, or fill with 0, the channel's training mean, or a line "
           "between the neighbours in time");
}

void to_json(nlohmann::json& json, const UeaStatistics& s) {
  json = {{"name", s.name},
          {"classes", s.classes},
          {"channels", s.channels},
          {"max_length", s.max_length},
          {"normalization", word_of(kNormalizations, s.normalization)},
          {"missing", word_of(kMissingPolicies, s.missing)},
          {"protocol", word_of(kProtocols, s.protocol)},
          {"validation_fraction", s.validation_fraction},
          {"seed", s.seed},
          {"means", s.means},
          {"stds", s.stds},
          {"train_checksum", s.train_checksum},
          {"test_checksum", s.test_checksum}};
}

void from_json(const nlohmann::json& json, UeaStatistics& s) {
  try {
    json.at("name").get_to(s.name);
    json.at("classes").get_to(s.classes);
    json.at("channels").get_to(s.channels);
    json.at("max_length").get_to(s.max_length);
    s.normalization = value_of(kNormalizations, json, "normalization");
    s.missing = value_of(kMissingPolicies, json, "missing");
    s.protocol = value_of(kProtocols, json, "protocol");
    json.at("validation_fraction").get_to(s.validation_fraction);
    json.at("seed").get_to(s.seed);
    json.at("means").get_to(s.means);
    json.at("stds").get_to(s.stds);
    json.at("train_checksum").get_to(s.train_checksum);
    json.at("test_checksum").get_to(s.test_checksum);
  } catch (const nlohmann::json::exception& error) {
    fail("uea: stored statistics: {}", error.what());
  }
  const auto channels = static_cast<size_t>(std::max<int64_t>(s.channels, 0));
  if (channels == 0 || s.means.size() != channels || s.stds.size() != channels) {
    fail("uea: stored statistics: {} channels, {} means, {} standard deviations", s.channels,
         s.means.size(), s.stds.size());
  }
  if (s.classes.empty() || s.max_length < 1 ||
      !std::is_sorted(s.classes.begin(), s.classes.end())) {
    fail("uea: stored statistics: no length, or classes that are absent or not sorted");
  }
}

void UeaSplit::fill_batch(std::span<const int64_t> indices, int64_t padded_length,
                          UeaBatch& batch) const {
  batch.size = static_cast<int64_t>(indices.size());
  batch.length = padded_length;
  batch.channels = channels;
  if (padded_length < 1) fail("uea: a batch of length {}", padded_length);
  const auto stride = static_cast<size_t>(padded_length * channels);
  batch.x.assign(indices.size() * stride, 0.0f);
  batch.lengths.resize(indices.size());
  batch.labels.resize(indices.size());
  for (size_t b = 0; b < indices.size(); ++b) {
    if (indices[b] < 0 || indices[b] >= size()) {
      fail("uea: case {} of a split of {}", indices[b], size());
    }
    const Case& from = cases[static_cast<size_t>(indices[b])];
    if (from.length > padded_length) {
      fail("uea: line {}: length {} does not fit a batch of length {}", from.line, from.length,
           padded_length);
    }
    std::copy(from.values.begin(), from.values.end(),
              batch.x.begin() + static_cast<std::ptrdiff_t>(b * stride));
    batch.lengths[b] = static_cast<int32_t>(from.length);
    batch.labels[b] = from.label;
  }
}

UeaPaths find_uea(const fs::path& root, const std::string& name) {
  std::error_code code;
  if (name.empty()) fail("uea: data.name is empty; set it to the name of a data set");
  if (name.find('/') != name.npos) {
    fail("uea: data.name '{}' has a '/'; the folder belongs into data.root", name);
  }
  if (!fs::is_directory(root, code)) {
    fail("uea: data.root '{}' is not a folder; --set data.root=DIR names the archive's",
         root.string());
  }

  const std::string train = name + "_TRAIN.ts", test = name + "_TEST.ts";
  std::vector<fs::path> folders = {root / name};
  for (const fs::path& folder : folders_in(root / name)) folders.push_back(folder);
  folders.push_back(root);
  for (const fs::path& folder : folders_in(root)) folders.push_back(folder);
  // One of the two files, packed or not, tells the folder; reading then reports what is absent.
  const auto holds = [](const fs::path& path) {
    std::error_code ignored;
    return fs::exists(path, ignored) || !packed_form(path).empty();
  };
  for (const fs::path& folder : folders) {
    if (holds(folder / train) || holds(folder / test)) return {folder / train, folder / test};
  }
  const std::set<std::string> found = names_below(root, 2);
  const std::vector<std::string> names(found.begin(), found.end());
  const std::vector<std::string_view> candidates(found.begin(), found.end());
  const std::string guess = nearest(name, candidates);
  fail("uea: no {} in {}{}; data sets found there: {}", (fs::path(name) / train).string(),
       root.string(), guess.empty() ? "" : "; did you mean '" + guess + "'?",
       names.empty() ? "none" : list_names(names));
}

std::vector<int64_t> choose_validation(std::span<const int32_t> labels, double fraction,
                                       uint64_t seed) {
  std::vector<std::vector<int64_t>> by_class;
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto label = static_cast<size_t>(labels[i]);
    if (label >= by_class.size()) by_class.resize(label + 1);
    by_class[label].push_back(static_cast<int64_t>(i));
  }
  RandomStream random(seed, hash_name("uea.validation"));
  std::vector<int64_t> chosen;
  for (std::vector<int64_t>& members : by_class) {
    const auto count = static_cast<int64_t>(members.size());
    if (count < 2) continue;
    const auto share =
        static_cast<int64_t>(std::floor(fraction * static_cast<double>(count) + 0.5));
    const int64_t take = std::clamp<int64_t>(share, 1, count - 1);
    for (int64_t k = 0; k < take; ++k) {  // the first `take` steps of a Fisher-Yates shuffle
      const auto other = k + static_cast<int64_t>(random.below(static_cast<uint64_t>(count - k)));
      std::swap(members[static_cast<size_t>(k)], members[static_cast<size_t>(other)]);
      chosen.push_back(members[static_cast<size_t>(k)]);
    }
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

UeaData load_uea(const UeaDataConfig& config, uint64_t seed) {
  const UeaPaths paths = find_uea(config.root, config.name);
  const TimeSeriesFile train = read_ts(paths.train);
  const TimeSeriesFile test = read_ts(paths.test);

  UeaData data;
  append(data.warnings, train.warnings);
  append(data.warnings, test.warnings);
  if (train.channels != test.channels) {
    fail("uea: {}: {} channels, but {} has {}", test.name, test.channels, train.name,
         train.channels);
  }
  for (const std::string& label : train.header.class_labels) {
    if (!std::binary_search(train.labels.begin(), train.labels.end(), label)) {
      data.warnings.push_back(
          fmt::format("uea: {}: class '{}' of @classLabel has no case", train.name, label));
    }
  }

  if (train.labels.size() == 1) {
    data.warnings.push_back(fmt::format("uea: {}: every case is of class '{}': nothing to learn",
                                        train.name, train.labels[0]));
  }

  UeaStatistics& statistics = data.statistics;
  statistics.name = config.name;
  statistics.classes = train.labels;
  statistics.channels = train.channels;
  statistics.max_length = std::max(longest(train), longest(test));
  statistics.normalization = config.normalization;
  statistics.missing = config.missing;
  statistics.protocol = config.protocol;
  statistics.validation_fraction = config.validation_fraction;
  statistics.seed = seed;
  statistics.train_checksum = checksum_text(train.checksum);
  statistics.test_checksum = checksum_text(test.checksum);

  const Partition parts = partition(train, statistics);
  fit(train, parts.train, statistics, data.warnings);
  report_missing(train, config.missing, data.warnings);
  report_missing(test, config.missing, data.warnings);
  data.train = prepare(train, parts.train, statistics);
  data.validation = prepare(train, parts.validation, statistics);
  data.test = prepare(test, all_cases(test), statistics);
  return data;
}

UeaSplit load_uea_split(const UeaDataConfig& config, const UeaStatistics& statistics,
                        SplitName split, std::vector<std::string>& warnings) {
  if (split == SplitName::kValidation && statistics.protocol == Protocol::kPaper) {
    fail("uea: the model was trained under protocol paper, which has no validation split");
  }
  const bool is_test = split == SplitName::kTest;
  const UeaPaths paths = find_uea(config.root, statistics.name);
  const TimeSeriesFile file = read_ts(is_test ? paths.test : paths.train);
  append(warnings, file.warnings);
  check_fit(file, statistics);
  const std::string& expected = is_test ? statistics.test_checksum : statistics.train_checksum;
  if (const std::string found = checksum_text(file.checksum); found != expected) {
    if (!is_test && statistics.protocol == Protocol::kValidation) {
      fail(
          "uea: {}: checksum {}, but the model was trained on {}: its {} split cannot be told "
          "from a changed file",
          file.name, found, expected, name_of(split));
    }
    warnings.push_back(
        fmt::format("uea: {}: checksum {}, the training run saw {}", file.name, found, expected));
  }
  report_missing(file, statistics.missing, warnings);
  if (is_test) return prepare(file, all_cases(file), statistics);
  const Partition parts = partition(file, statistics);
  return prepare(file, split == SplitName::kTrain ? parts.train : parts.validation, statistics);
}

}  // namespace primal
