#include "core/log.h"

#include <sstream>

#include "tests/catch.h"

using namespace primal;

namespace {

int64_t lines(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

}  // namespace

TEST_CASE("off a terminal progress is a line at the first step and then by time") {
  std::ostringstream out;
  Log log(out, false);
  Progress rare(log, 0, 100, std::chrono::hours(1));
  for (int step = 1; step <= 50; ++step) rare.step(step, "loss 1");
  REQUIRE(lines(out.str()) == 1);
  REQUIRE_THAT(out.str(), ContainsSubstring("step 1/100: loss 1, "));
  Progress always(log, 0, 100, std::chrono::seconds(0));
  for (int step = 1; step <= 5; ++step) always.step(step, "loss 1");
  REQUIRE(lines(out.str()) == 6);
  REQUIRE(out.str().find('\r') == std::string::npos);
}

TEST_CASE("on a terminal progress is one line that lines of the log replace") {
  std::ostringstream out;
  Log log(out, true);
  Progress progress(log, 0, 100);
  progress.step(50, "loss 1");
  REQUIRE(lines(out.str()) == 0);
  REQUIRE_THAT(out.str(), ContainsSubstring("[############------------] 50/100 loss 1"));
  REQUIRE_THAT(out.str(), ContainsSubstring(" left"));
  log.info("epoch 1");
  const std::string text = out.str();
  REQUIRE(text.find("\r\033[K", text.find("loss 1")) < text.find("epoch 1"));
  REQUIRE(lines(text) == 1);
}

TEST_CASE("warnings are marked and braces in lines are kept") {
  std::ostringstream out;
  Log log(out, false);
  log.warn("{} odd");
  log.info("{\"a\": 1}");
  REQUIRE_THAT(out.str(), ContainsSubstring("warning: {} odd"));
  REQUIRE_THAT(out.str(), ContainsSubstring("{\"a\": 1}"));
}

TEST_CASE("durations are short") {
  REQUIRE(duration_text(0.2) == "0s");
  REQUIRE(duration_text(59.4) == "59s");
  REQUIRE(duration_text(185) == "3m05s");
  REQUIRE(duration_text(3720) == "1h02m");
  REQUIRE(duration_text(-1) == "0s");
}
