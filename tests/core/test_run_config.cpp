#include "core/run_config.h"

#include <filesystem>
#include <sstream>
#include <string>

#include "core/files.h"
#include "tests/catch.h"

namespace primal {

TEST_CASE("docs/configuration.md holds the table of every key, as --describe-config prints it") {
  RunConfig config = RunConfig::for_task("uea");
  const std::string page =
      read_text_file(std::string(PRIMAL_SOURCE_DIR) + "/docs/configuration.md");
  INFO("put what 'primal-train --describe-config uea' prints in place of the page's table");
  CHECK((page.find(document_config(config)) != std::string::npos));
}

TEST_CASE("docs/lra.md holds the keys of data and model, as --describe-config prints them") {
  RunConfig config = RunConfig::for_task("lra");
  const std::string page = read_text_file(std::string(PRIMAL_SOURCE_DIR) + "/docs/lra.md");
  std::istringstream lines(document_config(config));
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `data") && !line.starts_with("| `model")) continue;
    CAPTURE(line);
    CHECK((page.find(line + "\n") != std::string::npos));
    ++rows;
  }
  CHECK(rows > 20);
}

TEST_CASE("a printed configuration reads back the same") {
  RunConfig config = RunConfig::for_task("uea");
  const std::string text = print_config(config);
  RunConfig again = load_run_config(ConfigSource::from_string(text, "printed"));
  CHECK(print_config(again) == text);
}

TEST_CASE("batch sizes beyond any memory are refused, one at the bound is not") {
  for (const std::string key : {"batch", "accumulate", "evaluate_batch"}) {
    const auto read = [&](int64_t size) {
      load_run_config(ConfigSource::from_string(
          fmt::format("{{task: lra, train: {{{}: {}}}}}", key, size), "run.yaml"));
    };
    CHECK_THROWS_WITH(read((1 << 20) + 1), ContainsSubstring("train." + key) &&
                                               ContainsSubstring("1048576") &&
                                               ContainsSubstring("1048577"));
    CHECK_THROWS_WITH(read(0), ContainsSubstring("train." + key));
  }
  CHECK_NOTHROW(load_run_config(
      ConfigSource::from_string("{task: lra, train: {evaluate_batch: 1048576}}", "run.yaml")));
}

TEST_CASE("every recipe of the Long Range Arena writes a checkpoint now and then") {
  int recipes = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(PRIMAL_SOURCE_DIR "/experiments/lra")) {
    if (entry.path().extension() != ".yaml") continue;
    INFO(entry.path());
    CHECK(load_run_config(ConfigSource::from_file(entry.path())).train.save_every_steps > 0);
    ++recipes;
  }
  CHECK(recipes >= 15);
}

TEST_CASE("an unknown task is refused with the known ones") {
  try {
    load_run_config(ConfigSource::from_string("task: ueo", "run.yaml"));
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("ueo") != std::string::npos);
    CHECK(std::string(error.what()).find("uea") != std::string::npos);
  }
}

}  // namespace primal
