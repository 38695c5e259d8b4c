#include "core/run_config.h"

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
