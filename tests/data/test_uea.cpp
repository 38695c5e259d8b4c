#include "data/uea.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "core/error.h"
#include "data/inspect.h"
#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

using namespace primal;
namespace fs = std::filesystem;

namespace {

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

const std::string kTrain =
    "@data\n"
    "1,2,3:10,10,10:b\n"  // line 2
    "5:30:a\n"            // line 3
    "7,9:50,50:b\n"       // line 4
    "4,4:20,20:a\n";      // line 5
const std::string kTest = "@data\n1,1,1,1:10,20,30,40:a\n2:2:b\n";

// A data set "Toy" in its own folder below `root`.
void write_toy(const fs::path& root, const std::string& train = kTrain,
               const std::string& test = kTest) {
  write(root / "Toy" / "Toy_TRAIN.ts", train);
  write(root / "Toy" / "Toy_TEST.ts", test);
}

UeaDataConfig toy_config(const fs::path& root) {
  UeaDataConfig config;
  config.root = root.string();
  config.name = "Toy";
  config.protocol = Protocol::kPaper;
  return config;
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool any_has(const std::vector<std::string>& lines, const std::string& part) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(part) != line.npos; });
}

std::vector<int32_t> labels_of(const UeaSplit& split) {
  std::vector<int32_t> labels;
  for (const UeaSplit::Case& one : split.cases) labels.push_back(one.label);
  return labels;
}

// Real files, or an empty path and a visible note.
fs::path real_data() {
  const char* folder = std::getenv("PRIMAL_TEST_DATA");
  if (folder == nullptr) {
    WARN("skipped: PRIMAL_TEST_DATA is not set");
    return {};
  }
  return fs::path(folder) / "uea";
}

}  // namespace

TEST_CASE("the data section has documented defaults and reads every choice", "[uea]") {
  UeaDataConfig config;
  read_config(ConfigSource::from_string("name: Toy", "x.yaml"), config);
  CHECK(config.normalization == Normalization::kStandardization);
  CHECK(config.protocol == Protocol::kValidation);
  CHECK(config.validation_fraction == 0.2);
  CHECK(config.missing == MissingPolicy::kLinear);
  read_config(ConfigSource::from_string("{root: r, name: T, normalization: none, protocol: paper, "
                                        "validation_fraction: 0.5, missing: mean}",
                                        "x.yaml"),
              config);
  CHECK(config.root == "r");
  CHECK(config.normalization == Normalization::kNone);
  CHECK(config.protocol == Protocol::kPaper);
  CHECK(config.missing == MissingPolicy::kMean);
  for (const char* wrong : {"validation_fraction: 0", "validation_fraction: 1", "missing: skip",
                            "protocol: best", "normalisation: none"}) {
    INFO(wrong);
    CHECK_THROWS_AS(read_config(ConfigSource::from_string(wrong, "x.yaml"), config), Error);
  }
}

TEST_CASE("uea features are standardised by all training time steps with n - 1", "[uea]") {
  const TemporaryFolder folder("uea");
  write_toy(folder.path);
  const UeaData data = load_uea(toy_config(folder.path), 1);
  // Channel 1: 1 2 3 5 7 9 4 4; channel 2: 10 10 10 30 50 50 20 20.
  const double mean1 = 35.0 / 8, mean2 = 25;
  double squares1 = 0, squares2 = 0;
  for (const double v : {1, 2, 3, 5, 7, 9, 4, 4}) squares1 += (v - mean1) * (v - mean1);
  for (const double v : {10, 10, 10, 30, 50, 50, 20, 20}) squares2 += (v - mean2) * (v - mean2);
  const double std1 = std::sqrt(squares1 / 7), std2 = std::sqrt(squares2 / 7);
  REQUIRE(data.statistics.means.size() == 2);
  CHECK(data.statistics.means[0] == Approx(mean1).epsilon(1e-12));
  CHECK(data.statistics.means[1] == Approx(mean2).epsilon(1e-12));
  CHECK(data.statistics.stds[0] == Approx(std1).epsilon(1e-12));
  CHECK(data.statistics.stds[1] == Approx(std2).epsilon(1e-12));
  CHECK(data.train.cases[0].values[2] == Approx((2 - mean1) / std1).epsilon(1e-6));
  CHECK(data.train.cases[0].values[1] == Approx((10 - mean2) / std2).epsilon(1e-6));
  CHECK(data.test.cases[0].values[7] == Approx((40 - mean2) / std2).epsilon(1e-6));
  CHECK(data.validation.size() == 0);
  CHECK(data.warnings.empty());

  UeaDataConfig plain = toy_config(folder.path);
  plain.normalization = Normalization::kNone;
  CHECK(load_uea(plain, 1).train.cases[0].values == std::vector<float>{1, 10, 2, 10, 3, 10});
}

TEST_CASE("the width of a uea model is the longest case of both files", "[uea]") {
  const TemporaryFolder folder("uea");
  write_toy(folder.path);
  CHECK(load_uea(toy_config(folder.path), 1).statistics.max_length == 4);
  write_toy(folder.path, kTest, kTrain);
  CHECK(load_uea(toy_config(folder.path), 1).statistics.max_length == 4);
}

TEST_CASE("uea class ids follow the sorted labels of the training rows in both files", "[uea]") {
  const TemporaryFolder folder("uea");
  write_toy(folder.path, "@classLabel true 2 10 1\n@data\n1:2\n2:10\n3:1\n", "@data\n1:10\n2:2\n");
  const UeaData data = load_uea(toy_config(folder.path), 1);
  CHECK(data.statistics.classes == std::vector<std::string>{"1", "10", "2"});
  CHECK(labels_of(data.train) == std::vector<int32_t>{2, 1, 0});
  CHECK(labels_of(data.test) == std::vector<int32_t>{1, 2});
}

TEST_CASE("a test label never seen in training names file, line, label and known labels", "[uea]") {
  const TemporaryFolder folder("uea");
  write_toy(folder.path, kTrain, "@data\n1:1:a\n1:1:zebra\n");
  CHECK(error_of([&] { load_uea(toy_config(folder.path), 1); }) ==
        "uea: Toy_TEST.ts:3: label 'zebra' was not seen in training; known labels: a, b");
}

TEST_CASE("a class that only the header of the training file knows is reported", "[uea]") {
  const TemporaryFolder folder("uea");
  write_toy(folder.path, "@classLabel true a b c\n" + kTrain);
  const UeaData data = load_uea(toy_config(folder.path), 1);
  CHECK(data.statistics.classes.size() == 2);
  CHECK(any_has(data.warnings, "class 'c' of @classLabel has no case"));
}

TEST_CASE("uea files with different channel counts do not go together", "[uea]") {
  const TemporaryFolder folder("uea");
  write_toy(folder.path, kTrain, "@data\n1:a\n");
  CHECK(error_of([&] { load_uea(toy_config(folder.path), 1); }) ==
        "uea: Toy_TEST.ts: 1 channels, but Toy_TRAIN.ts has 2");
}

TEST_CASE("a uea channel that is constant in training is centred and not scaled", "[uea]") {
  const TemporaryFolder folder("uea");
  write_toy(folder.path, "@data\n0.1,0.1,0.1:1,2,3:a\n", "@data\n0.1,5.1:1,2:a\n");
  const UeaData data = load_uea(toy_config(folder.path), 1);
  CHECK(data.statistics.stds[0] == 0);
  CHECK(data.train.cases[0].values[0] == 0);
  CHECK(data.test.cases[0].values[2] == Approx(5));
  CHECK(any_has(data.warnings, "channel 1 is 0.1 in all of training"));
}

TEST_CASE("missing uea cells are left out of the statistics and filled as told", "[uea]") {
  const TemporaryFolder folder("uea");
  // The gaps: at the start, inside, at the end, and a case without any value.
  write_toy(folder.path, "@data\n?,?,2,?,?,8,?:a\n1,2,3,4,5,6,7:b\n", "@data\n?,?:a\n");
  UeaDataConfig config = toy_config(folder.path);
  config.normalization = Normalization::kNone;
  const float mean = 38.0f / 9;

  config.missing = MissingPolicy::kLinear;
  UeaData data = load_uea(config, 1);
  CHECK(data.statistics.means[0] == Approx(38.0 / 9));
  CHECK(data.train.cases[0].values == std::vector<float>{2, 2, 2, 4, 6, 8, 8});
  CHECK(data.test.cases[0].values == std::vector<float>{mean, mean});
  CHECK(any_has(data.warnings, "Toy_TRAIN.ts: 5 missing cells filled (data.missing: linear)"));
  CHECK(any_has(data.warnings, "Toy_TEST.ts: 2 missing cells filled (data.missing: linear)"));

  config.missing = MissingPolicy::kZero;
  data = load_uea(config, 1);
  CHECK(data.train.cases[0].values == std::vector<float>{0, 0, 2, 0, 0, 8, 0});
  CHECK(data.statistics.means[0] == Approx(38.0 / 9));

  config.missing = MissingPolicy::kMean;
  CHECK(load_uea(config, 1).train.cases[0].values ==
        std::vector<float>{mean, mean, 2, mean, mean, 8, mean});

  config.missing = MissingPolicy::kError;
  CHECK(error_of([&] { load_uea(config, 1); }) ==
        "uea: Toy_TRAIN.ts:2: channel 1, time step 1 is missing, and data.missing is error; choose "
        "zero, mean or linear");
}

TEST_CASE("missing uea cells never reach a batch as NaN", "[uea]") {
  const TemporaryFolder folder("uea");
  write_toy(folder.path, "@data\n?,1,?:?,?,?:a\n2,?,4:?,?,?:b\n", "@data\n?:?:a\n");
  for (const auto policy : {MissingPolicy::kZero, MissingPolicy::kMean, MissingPolicy::kLinear}) {
    for (const auto normalization : {Normalization::kNone, Normalization::kStandardization}) {
      UeaDataConfig config = toy_config(folder.path);
      config.missing = policy;
      config.normalization = normalization;
      const UeaData data = load_uea(config, 1);
      CHECK(any_has(data.warnings, "channel 2 has no value in training"));
      for (const UeaSplit* split : {&data.train, &data.test}) {
        for (const UeaSplit::Case& one : split->cases) {
          for (const float value : one.values) CHECK(std::isfinite(value));
        }
      }
    }
  }
}

TEST_CASE("the validation split is stratified, leaves every class in training, and repeats",
          "[uea]") {
  std::vector<int32_t> labels;
  const std::vector<int> counts = {30, 2, 1, 7, 10};
  for (size_t c = 0; c < counts.size(); ++c) {
    labels.insert(labels.end(), static_cast<size_t>(counts[c]), static_cast<int32_t>(c));
  }
  std::rotate(labels.begin(), labels.begin() + 13, labels.end());
  for (const double fraction : {0.01, 0.2, 0.5, 0.99}) {
    const std::vector<int64_t> chosen = choose_validation(labels, fraction, 5);
    CHECK(std::is_sorted(chosen.begin(), chosen.end()));
    CHECK(std::set<int64_t>(chosen.begin(), chosen.end()).size() == chosen.size());
    std::map<int32_t, int> taken;
    for (const int64_t i : chosen) ++taken[labels.at(static_cast<size_t>(i))];
    for (size_t c = 0; c < counts.size(); ++c) {
      const int n = taken[static_cast<int32_t>(c)];
      if (counts[c] == 1) {
        CHECK(n == 0);
      } else {
        CHECK(n >= 1);
        CHECK(n < counts[c]);
        CHECK(std::abs(n - fraction * counts[c]) <= 1);
      }
    }
    CHECK(choose_validation(labels, fraction, 5) == chosen);
  }
  CHECK(choose_validation(labels, 0.2, 5) != choose_validation(labels, 0.2, 6));
  // Fixed for good: a checkpoint's split has to come back on any machine.
  const std::vector<int32_t> ten = {0, 1, 0, 1, 0, 1, 0, 1, 0, 1};
  CHECK(choose_validation(ten, 0.4, 7) == std::vector<int64_t>{2, 5, 6, 7});
}

TEST_CASE("under protocol validation the statistics see only the cases that are trained on",
          "[uea]") {
  const TemporaryFolder folder("uea");
  std::string rows = "@data\n";
  for (int i = 0; i < 10; ++i) rows += std::to_string(i * i) + ",1:" + (i % 2 ? "a\n" : "b\n");
  write_toy(folder.path, rows, "@data\n1:a\n");
  UeaDataConfig config = toy_config(folder.path);
  config.protocol = Protocol::kValidation;
  config.normalization = Normalization::kNone;
  const UeaData data = load_uea(config, 3);
  CHECK(data.train.size() == 8);
  CHECK(data.validation.size() == 2);
  CHECK(labels_of(data.validation)[0] != labels_of(data.validation)[1]);
  double sum = 0, all = 0;
  for (const UeaSplit::Case& one : data.train.cases) sum += one.values[0] + one.values[1];
  for (int i = 0; i < 10; ++i) all += i * i + 1;
  CHECK(data.statistics.means[0] == Approx(sum / 16));
  CHECK(data.statistics.means[0] != Approx(all / 20));
  std::set<int64_t> lines;
  for (const UeaSplit* split : {&data.train, &data.validation}) {
    for (const UeaSplit::Case& one : split->cases) lines.insert(one.line);
  }
  CHECK(lines.size() == 10);
}

TEST_CASE("a uea batch is padded with zeros and carries lengths and labels", "[uea]") {
  const TemporaryFolder folder("uea");
  write_toy(folder.path);
  UeaDataConfig config = toy_config(folder.path);
  config.normalization = Normalization::kNone;
  const UeaData data = load_uea(config, 1);
  UeaBatch batch;
  batch.x.assign(1000, 7.0f);  // memory of an earlier batch must not show
  const std::vector<int64_t> indices = {2, 1};
  data.train.fill_batch(indices, 3, batch);
  CHECK(batch.size == 2);
  CHECK(batch.length == 3);
  CHECK(batch.channels == 2);
  CHECK(batch.x == std::vector<float>{7, 50, 9, 50, 0, 0, 5, 30, 0, 0, 0, 0});
  CHECK(batch.lengths == std::vector<int32_t>{2, 1});
  CHECK(batch.labels == std::vector<int32_t>{1, 0});

  const std::vector<int64_t> outside = {4}, negative = {-1}, longest = {0};
  CHECK_THROWS_WITH(data.train.fill_batch(outside, 3, batch), "uea: case 4 of a split of 4");
  CHECK_THROWS_WITH(data.train.fill_batch(negative, 3, batch), "uea: case -1 of a split of 4");
  CHECK_THROWS_WITH(data.train.fill_batch(longest, 2, batch),
                    "uea: line 2: length 3 does not fit a batch of length 2");
  CHECK_THROWS_AS(data.train.fill_batch(indices, 0, batch), Error);
  data.train.fill_batch({}, 3, batch);
  CHECK(batch.x.empty());
}

TEST_CASE("padding stands after normalisation, as zeros", "[uea]") {
  const TemporaryFolder folder("uea");
  write_toy(folder.path);
  const UeaData data = load_uea(toy_config(folder.path), 1);
  UeaBatch batch;
  const std::vector<int64_t> indices = {1};
  data.train.fill_batch(indices, 4, batch);
  for (size_t k = 0; k < batch.x.size(); ++k) {
    INFO(k);
    CHECK((batch.x[k] == 0) == (k >= 2));
  }
}

TEST_CASE("uea statistics return from JSON unchanged and broken ones are refused", "[uea]") {
  const TemporaryFolder folder("uea");
  write_toy(folder.path);
  UeaDataConfig config = toy_config(folder.path);
  config.protocol = Protocol::kValidation;
  config.validation_fraction = 0.3;
  config.missing = MissingPolicy::kMean;
  const UeaStatistics before = load_uea(config, 18446744073709551615ull).statistics;
  const std::string text = nlohmann::json(before).dump();
  const auto after = nlohmann::json::parse(text).get<UeaStatistics>();
  CHECK(after.name == "Toy");
  CHECK(after.classes == before.classes);
  CHECK(after.channels == 2);
  CHECK(after.max_length == 4);
  CHECK(after.normalization == Normalization::kStandardization);
  CHECK(after.missing == MissingPolicy::kMean);
  CHECK(after.protocol == Protocol::kValidation);
  CHECK(after.validation_fraction == 0.3);
  CHECK(after.seed == 18446744073709551615ull);
  CHECK(after.means == before.means);
  CHECK(after.stds == before.stds);
  CHECK(after.train_checksum == checksum_text(read_ts(folder.path / "Toy/Toy_TRAIN.ts").checksum));
  CHECK(after.test_checksum == before.test_checksum);

  const nlohmann::json good = before;
  for (const auto& [key, value] : good.items()) {
    INFO(key);
    nlohmann::json broken = good;
    broken.erase(key);
    CHECK_THROWS_AS(broken.get<UeaStatistics>(), Error);
    broken[key] = nlohmann::json::object();
    CHECK_THROWS_AS(broken.get<UeaStatistics>(), Error);
  }
  nlohmann::json short_means = good;
  short_means["means"] = {1.0};
  CHECK_THROWS_AS(short_means.get<UeaStatistics>(), Error);
  nlohmann::json unsorted = good;
  unsorted["classes"] = {"b", "a"};
  CHECK_THROWS_AS(unsorted.get<UeaStatistics>(), Error);
  nlohmann::json unknown = good;
  unknown["missing"] = "guess";
  CHECK_THROWS_AS(unknown.get<UeaStatistics>(), Error);
}

TEST_CASE("each split loaded for evaluation alone equals the one of the training run", "[uea]") {
  const TemporaryFolder folder("uea");
  std::string rows = "@data\n";
  for (int i = 0; i < 12; ++i) {
    rows += std::to_string(i) + "," + std::to_string(3 * i % 7) + ":1,?:" + (i % 3 ? "x\n" : "y\n");
  }
  write_toy(folder.path, rows, "@data\n100,200,300:3,4,5:x\n1:?:y\n");
  UeaDataConfig config = toy_config(folder.path);
  config.protocol = Protocol::kValidation;
  const UeaData data = load_uea(config, 9);
  const auto stored = nlohmann::json::parse(nlohmann::json(data.statistics).dump());

  UeaDataConfig where;  // the choices come from the statistics, not from here
  where.root = folder.path.string();
  where.normalization = Normalization::kNone;
  where.missing = MissingPolicy::kError;
  where.validation_fraction = 0.9;
  std::vector<std::string> warnings;
  const std::pair<SplitName, const UeaSplit*> expected[] = {
      {SplitName::kTrain, &data.train},
      {SplitName::kValidation, &data.validation},
      {SplitName::kTest, &data.test}};
  for (const auto& [split, original] : expected) {
    INFO(name_of(split));
    const UeaSplit again = load_uea_split(where, stored.get<UeaStatistics>(), split, warnings);
    REQUIRE(again.size() == original->size());
    REQUIRE(again.size() > 0);
    CHECK(again.channels == original->channels);
    for (size_t i = 0; i < again.cases.size(); ++i) {
      CHECK(again.cases[i].values == original->cases[i].values);
      CHECK(again.cases[i].label == original->cases[i].label);
      CHECK(again.cases[i].line == original->cases[i].line);
    }
  }
  CHECK_FALSE(any_has(warnings, "checksum"));
}

TEST_CASE("evaluation needs only the file of its split", "[uea]") {
  const TemporaryFolder folder("uea");
  write_toy(folder.path);
  const UeaDataConfig config = toy_config(folder.path);
  const UeaStatistics statistics = load_uea(config, 1).statistics;
  fs::remove(folder.path / "Toy" / "Toy_TRAIN.ts");
  std::vector<std::string> warnings;
  CHECK(load_uea_split(config, statistics, SplitName::kTest, warnings).size() == 2);
  CHECK(error_of([&] { load_uea_split(config, statistics, SplitName::kTrain, warnings); }) ==
        "uea: " + (folder.path / "Toy" / "Toy_TRAIN.ts").string() + ": no such file");
}

TEST_CASE("evaluation refuses a uea file that does not fit the model", "[uea]") {
  const TemporaryFolder folder("uea");
  write_toy(folder.path);
  const UeaDataConfig config = toy_config(folder.path);
  const UeaStatistics statistics = load_uea(config, 1).statistics;
  std::vector<std::string> warnings;
  const auto error_with = [&](const std::string& test) {
    write(folder.path / "Toy" / "Toy_TEST.ts", test);
    return error_of([&] { load_uea_split(config, statistics, SplitName::kTest, warnings); });
  };
  CHECK(error_with("@data\n1:a\n") ==
        "uea: Toy_TEST.ts: 1 channels, but the model was trained on 2");
  CHECK(error_with("@data\n1:1:a\n1,2,3,4,5:1,2,3,4,5:a\n") ==
        "uea: Toy_TEST.ts:3: length 5, but the model takes at most 4");
  CHECK(error_with("@data\n1:1:c\n") ==
        "uea: Toy_TEST.ts:2: label 'c' was not seen in training; known labels: a, b");
  CHECK(warnings.empty() == false);  // the second and third file: other checksums
  CHECK(error_with("@data\n1:1:a\n") == "no error");
  CHECK(any_has(warnings, "Toy_TEST.ts: checksum "));
}

TEST_CASE("a validation split is refused when the training file has changed or none was made",
          "[uea]") {
  const TemporaryFolder folder("uea");
  write_toy(folder.path);
  UeaDataConfig config = toy_config(folder.path);
  std::vector<std::string> warnings;
  const UeaStatistics paper = load_uea(config, 1).statistics;
  CHECK(error_of([&] { load_uea_split(config, paper, SplitName::kValidation, warnings); }) ==
        "uea: the model was trained under protocol paper, which has no validation split");
  config.protocol = Protocol::kValidation;
  const UeaStatistics validation = load_uea(config, 1).statistics;
  write(folder.path / "Toy" / "Toy_TRAIN.ts", kTrain + "1:1:a\n");
  CHECK(error_of([&] {
          load_uea_split(config, validation, SplitName::kValidation, warnings);
        }).find("Toy_TRAIN.ts: checksum ") != std::string::npos);
  CHECK(load_uea_split(config, paper, SplitName::kTrain, warnings).size() == 5);
  CHECK(any_has(warnings, "Toy_TRAIN.ts: checksum "));
}

TEST_CASE("split names are words and wrong ones are usage errors", "[uea]") {
  for (const auto split : {SplitName::kTrain, SplitName::kValidation, SplitName::kTest}) {
    CHECK(split_named(name_of(split)) == split);
  }
  CHECK_THROWS_AS(split_named("tset"), UsageError);
}

TEST_CASE("uea files are found in NAME, one folder deeper, and in the root", "[uea]") {
  for (const char* place : {"Toy", "Toy/Toy", "Toy/data", ".", "collection"}) {
    INFO(place);
    const TemporaryFolder folder("uea");
    const fs::path at = (folder.path / place).lexically_normal();
    write(at / "Toy_TRAIN.ts", "@problemName SomethingElse\n" + kTrain);
    write(at / "Toy_TEST.ts", kTest);
    const UeaPaths paths = find_uea(folder.path, "Toy");
    CHECK(fs::equivalent(paths.train, at / "Toy_TRAIN.ts"));
    CHECK(fs::equivalent(paths.test, at / "Toy_TEST.ts"));
    CHECK(load_uea(toy_config(folder.path), 1).statistics.name == "Toy");
  }
}

TEST_CASE("an absent or packed uea file is named by its exact path", "[uea]") {
  const TemporaryFolder folder("uea");
  const fs::path inner = folder.path / "Toy" / "Toy";
  write(inner / "Toy_TRAIN.ts", kTrain);
  const auto error = [&] { return error_of([&] { load_uea(toy_config(folder.path), 1); }); };
  CHECK(error() == "uea: " + (inner / "Toy_TEST.ts").string() + ": no such file");
  write(inner / "Toy_TEST.ts.xz", "x");
  CHECK(error() == "uea: " + (inner / "Toy_TEST.ts").string() +
                       ": no such file, only Toy_TEST.ts.xz; unpack it first");
}

TEST_CASE("a data set that is not there lists what is, with the nearest name", "[uea]") {
  const TemporaryFolder folder("uea");
  write(folder.path / "Heartbeat" / "Heartbeat_TRAIN.ts", kTrain);
  write(folder.path / "more" / "deep" / "Handwriting_TEST.ts", kTest);
  CHECK(error_of([&] { find_uea(folder.path, "Hartbeat"); }) ==
        "uea: no Hartbeat/Hartbeat_TRAIN.ts in " + folder.path.string() +
            "; did you mean 'Heartbeat'?; data sets found there: Handwriting, Heartbeat");
  CHECK(error_of([&] {
          find_uea(folder.path / "Heartbeat" / "x", "A");
        }).find("is not a folder; --set data.root=DIR") != std::string::npos);
  CHECK(error_of([&] { find_uea(folder.path, ""); }).find("data.name is empty") !=
        std::string::npos);
  CHECK(error_of([&] { find_uea(folder.path, "../x"); }).find("data.root") != std::string::npos);
  const TemporaryFolder empty("uea_empty");
  CHECK(error_of([&] { find_uea(empty.path, "A"); }).find("found there: none") !=
        std::string::npos);
}

TEST_CASE("inspecting uea files tells cases, lengths, gaps, classes and checksum", "[uea]") {
  const TemporaryFolder folder("uea");
  write_toy(folder.path, "@missing false\n@data\n1,?,3,4:a\n1:b\n1,2:a", "@data\n1:a\n1,2\n");
  const nlohmann::json files = inspect_ts(folder.path / "Toy").at("files");
  REQUIRE(files.size() == 2);
  const nlohmann::json& train = files[0];
  CHECK(train.at("file") == "Toy_TRAIN.ts");
  CHECK(train.at("cases") == 3);
  CHECK(train.at("channels") == 1);
  CHECK(train.at("length") == nlohmann::json({{"min", 1}, {"median", 2.0}, {"max", 4}}));
  CHECK(train.at("missing_cells") == 1);
  CHECK(
      train.at("classes") ==
      nlohmann::json::parse(R"([{"id":0,"label":"a","cases":2},{"id":1,"label":"b","cases":1}])"));
  CHECK(train.at("header") == nlohmann::json({{"missing", false}}));
  CHECK(train.at("ends_with_line") == false);
  CHECK(train.at("warnings").size() == 1);
  CHECK(train.at("checksum").get<std::string>().size() == 16);
  CHECK(files[1].at("file") == "Toy_TEST.ts");
  CHECK(files[1].at("error").get<std::string>().starts_with("uea: Toy_TEST.ts:3: no class label"));

  CHECK(inspect_ts(folder.path).at("files").size() == 2);  // one folder deeper
  const std::string text = render_inspection(inspect_ts(folder.path));
  for (const char* part : {"Toy_TRAIN.ts\n", "1 min, 2.0 median, 4 max", "truncated", "error"}) {
    INFO(part);
    CHECK(text.find(part) != text.npos);
  }
  CHECK_THROWS_AS(inspect_ts(folder.path / "Toy" / "Toy_TEST.ts"), Error);
  CHECK_THROWS_AS(inspect_ts(folder.path / "nowhere"), Error);
  const TemporaryFolder empty("uea_empty");
  CHECK_THROWS_AS(inspect_ts(empty.path), Error);
}

TEST_CASE("training cases of a single class are a warning", "[uea]") {
  const TemporaryFolder folder("uea");
  write_toy(folder.path, "@data\n1,2:a\n3,4:a\n", "@data\n1,2:a\n");
  CHECK(any_has(load_uea(toy_config(folder.path), 1).warnings, "every case is of class 'a'"));
}

TEST_CASE("the run record holds the facts of both uea files", "[uea]") {
  const TemporaryFolder folder("uea");
  write_toy(folder.path);
  const UeaData data = load_uea(toy_config(folder.path), 1);
  CHECK(data.train.file.at("cases") == 4);
  CHECK(data.test.file.at("length").at("max") == 4);
  CHECK(data.train.file.at("checksum") == data.statistics.train_checksum);
}

TEST_CASE("JapaneseVowels loads under both protocols", "[uea][data]") {
  const fs::path root = real_data();
  if (root.empty()) return;
  UeaDataConfig config;
  config.root = root.string();
  config.name = "JapaneseVowels";
  config.protocol = Protocol::kPaper;
  const UeaData paper = load_uea(config, 1);
  CHECK(paper.train.size() == 270);
  CHECK(paper.validation.size() == 0);
  CHECK(paper.test.size() == 370);
  CHECK(paper.statistics.channels == 12);
  CHECK(paper.statistics.max_length == 29);
  CHECK(paper.statistics.classes.size() == 9);
  CHECK(paper.warnings.empty());
  for (size_t c = 0; c < 12; ++c) {
    double sum = 0, squares = 0, count = 0;
    for (const UeaSplit::Case& one : paper.train.cases) {
      for (size_t k = c; k < one.values.size(); k += 12) {
        sum += one.values[k];
        squares += one.values[k] * one.values[k];
        ++count;
      }
    }
    CHECK(std::abs(sum / count) < 1e-6);
    CHECK(squares / (count - 1) == Approx(1).epsilon(1e-5));
  }

  config.protocol = Protocol::kValidation;
  const UeaData validation = load_uea(config, 1);
  CHECK(validation.train.size() == 216);
  CHECK(validation.validation.size() == 54);
  std::map<int32_t, int> counts;
  for (const int32_t label : labels_of(validation.validation)) ++counts[label];
  for (const auto& [label, count] : counts) CHECK(count == 6);
  CHECK(counts.size() == 9);
}

TEST_CASE("published sets with odd files load or say what is wrong", "[uea][data]") {
  const fs::path root = real_data();
  if (root.empty()) return;
  UeaDataConfig config;
  config.root = root.string();
  config.protocol = Protocol::kPaper;
  for (const char* name :
       {"UnitTest", "MinimalChinatown", "UnequalMinimalChinatown", "MinimalJapaneseVowels",
        "DodgerLoopGame", "BasicMotions", "UWaveGestureLibrary", "Handwriting"}) {
    INFO(name);
    config.name = name;
    const UeaData data = load_uea(config, 1);
    CHECK(data.train.size() > 0);
    CHECK(data.test.size() > 0);
    for (const UeaSplit::Case& one : data.train.cases) {
      CHECK(std::all_of(one.values.begin(), one.values.end(),
                        [](float value) { return std::isfinite(value); }));
    }
  }
  config.name = "DodgerLoopGame";
  config.missing = MissingPolicy::kError;
  CHECK_THROWS_AS(load_uea(config, 1), Error);
  config.name = "SelfRegulationSCP1";
  CHECK(error_of([&] { load_uea(config, 1); }).find("unpack it first") != std::string::npos);
  config.name = "JapaneseVowel";
  CHECK(error_of([&] { load_uea(config, 1); }).find("did you mean 'JapaneseVowels'?") !=
        std::string::npos);
}
