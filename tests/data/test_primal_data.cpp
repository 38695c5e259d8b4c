#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

using namespace primal;
namespace fs = std::filesystem;

namespace {

struct Outcome {
  int exit_code = -1;
  std::string text;  // standard output and error together
};

Outcome run(const std::string& arguments) {
  const std::string command = PRIMAL_BINARY_DIR "/primal-data " + arguments + " 2>&1";
  Outcome out;
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  char chunk[4096];
  for (size_t n = 0; (n = std::fread(chunk, 1, sizeof chunk, pipe)) > 0;) out.text.append(chunk, n);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) out.exit_code = WEXITSTATUS(status);
  return out;
}

bool program_is_built() {
  if (fs::exists(PRIMAL_BINARY_DIR "/primal-data")) return true;
  WARN("skipped: primal-data is not built");
  return false;
}

}  // namespace

TEST_CASE("primal-data generates, keeps and inspects a data set", "[apps]") {
  if (!program_is_built()) return;
  const TemporaryFolder folder("primal_data");
  const std::string generate = "generate uea --train 8 --test 4 --output " + folder.path.string();
  const std::string train = (folder.path / "Generated" / "Generated_TRAIN.ts").string();
  Outcome outcome = run(generate);
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.text.starts_with("wrote " + train + "\n"));
  CHECK(run(generate).text.starts_with("unchanged: " + train + "\n"));
  outcome = run(generate + " --seed 2");
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.text == "primal-data: uea: " + train +
                            " exists already with other content; --overwrite replaces it\n");
  CHECK(run(generate + " --seed 2 --overwrite").exit_code == 0);

  outcome = run("inspect " + folder.path.string());
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.text.find("rising-slow") != std::string::npos);
  CHECK(run("inspect --json " + train).text.find("\"cases\": 8") != std::string::npos);
}

TEST_CASE("primal-data exits 1 on an error and 2 on wrong use, with one line", "[apps]") {
  if (!program_is_built()) return;
  Outcome outcome = run("inspect /nowhere/x.ts");
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.text == "primal-data: uea: /nowhere/x.ts: no such file\n");
  outcome = run("generate uea --sed 3 --output x");
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.text.find("'--sed'; did you mean --seed?") != std::string::npos);
  outcome = run("inspct x");
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.text.find("'inspct'; did you mean 'inspect'?") != std::string::npos);
  CHECK(run("generate uea").exit_code == 2);
  CHECK(run("generate uea --output x --seed -1").exit_code == 2);
  CHECK(run("inspect ''").exit_code == 2);
  CHECK(run("--help").exit_code == 0);
}

TEST_CASE("primal-data shows the readable file beside a broken one and exits 1", "[apps]") {
  if (!program_is_built()) return;
  const TemporaryFolder folder("primal_data");
  run("generate uea --train 8 --test 8 --output " + folder.path.string());
  const fs::path test = folder.path / "Generated" / "Generated_TEST.ts";
  fs::resize_file(test, fs::file_size(test) - 20);  // cut inside the last row
  const Outcome outcome = run("inspect " + folder.path.string());
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.text.find("error: uea: Generated_TEST.ts:18: ") != std::string::npos);
  CHECK(outcome.text.find("cases      8") != std::string::npos);
}
