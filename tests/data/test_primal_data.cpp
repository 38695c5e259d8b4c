#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "tests/catch.h"
#include "tests/data/temporary_folder.h"

using namespace primal;
namespace fs = std::filesystem;

namespace {

struct Outcome {
  int exit_code = -1;
  std::string text;  // standard output and error together
};

Outcome run(const std::string& arguments, const std::string& under = "") {
  const std::string command = under + PRIMAL_BINARY_DIR "/primal-data " + arguments + " 2>&1";
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
  const TemporaryFolder empty("primal_data_empty");
  outcome = run("inspect " + empty.path.string());
  CHECK(outcome.exit_code == 1);
  CHECK(outcome.text.ends_with(
      "no .ts file in it or one folder deeper; --task says what else the folder holds\n"));
  outcome = run("generate uea --sed 3 --output x");
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.text.find("'--sed'; did you mean --seed?") != std::string::npos);
  outcome = run("inspct x");
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.text.find("'inspct'; did you mean 'inspect'?") != std::string::npos);
  CHECK(run("generate uea").exit_code == 2);
  for (const std::string seed : {"-1", "99999999999999999999", "1.5", "1e3", "x"}) {
    outcome = run("generate uea --output x --seed " + seed);
    CHECK(outcome.exit_code == 2);
    CHECK_THAT(outcome.text, ContainsSubstring("from 0 to 2^64 - 1, got " + seed));
  }
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

TEST_CASE("primal-data generate that is killed leaves the old data, and the next one tidies up",
          "[apps]") {
  if (!program_is_built()) return;
  const TemporaryFolder folder("primal_data_killed");
  const std::string place = folder.path.string();
  const auto names = [](const fs::path& at) {
    std::set<std::string> out;
    for (const auto& entry : fs::directory_iterator(at)) out.insert(entry.path().filename());
    return out;
  };
  struct Kind {
    std::string task, place, small, endless;  // small: 8 for training; endless: takes minutes
  };
  const Kind kinds[] = {
      {"listops", "listops-1000", " --train 8 --validation 4 --test 4", " --train 900000"},
      {"pathfinder", "pathfinder32", " --examples 10", " --examples 1000000"}};
  for (const Kind& kind : kinds) {
    const std::string generate = "generate " + kind.task + " --overwrite --output " + place;
    const fs::path holds = folder.path / kind.place;
    CHECK(run(generate + kind.small).exit_code == 0);
    CHECK(run(generate + kind.endless, "timeout -s KILL 1 ").exit_code != 0);
    const Outcome inspected = run("inspect " + place + " --task " + kind.task);
    CHECK(inspected.exit_code == 0);
    CHECK_THAT(inspected.text, ContainsSubstring("examples   8\n"));
    CHECK(run(generate + kind.small).exit_code == 0);
    for (const std::string& name : names(holds)) CHECK(!name.starts_with('.'));
  }
}
