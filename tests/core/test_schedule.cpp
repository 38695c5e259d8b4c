#include "core/schedule.h"

#include <cmath>

#include "tests/catch.h"

using namespace primal;

namespace {

struct Holder {
  std::unique_ptr<Schedule> schedule = schedule_kinds()[0].make();
  void fields(Fields& f) { f.variant<Schedule>("schedule", schedule, schedule_kinds(), ""); }
};

std::unique_ptr<Schedule> from(const std::string& yaml) {
  Holder holder;
  read_config(ConfigSource::from_string("schedule: " + yaml, "test"), holder);
  return std::move(holder.schedule);
}

}  // namespace

TEST_CASE("a constant schedule keeps the rate") {
  const auto schedule = from("constant");
  for (const int64_t step : {0, 1, 99, 100000}) REQUIRE(schedule->rate(1e-3, step, 100) == 1e-3);
}

TEST_CASE("a linear warm-up starts one part above its start and then stays at the peak") {
  const auto schedule = from("{kind: linear_warmup, warmup_steps: 10}");
  REQUIRE(schedule->rate(1.0, 0, 100) == Approx(0.1));
  REQUIRE(schedule->rate(1.0, 4, 100) == Approx(0.5));
  REQUIRE(schedule->rate(1.0, 9, 100) == 1.0);
  REQUIRE(schedule->rate(1.0, 99, 100) == 1.0);
}

TEST_CASE("a cosine goes from the peak to the end rate, half way at the middle") {
  const auto schedule = from("{kind: cosine, end_lr: 0.2}");
  REQUIRE(schedule->rate(1.0, 0, 100) == Approx(1.0));
  REQUIRE(schedule->rate(1.0, 50, 100) == Approx(0.6));
  REQUIRE(schedule->rate(1.0, 100, 100) == Approx(0.2));
  REQUIRE(schedule->rate(1.0, 500, 100) == Approx(0.2));
  const auto warm = from("{kind: cosine, warmup_steps: 20, start_lr: 0.1}");
  REQUIRE(warm->rate(1.0, 0, 100) == Approx(0.1));
  REQUIRE(warm->rate(1.0, 10, 100) == Approx(0.55));
  REQUIRE(warm->rate(1.0, 20, 100) == Approx((1 + std::cos(M_PI * 0.2)) / 2));
}

TEST_CASE(
    "one cycle starts at a 25th, peaks at the last warm-up update and ends at the lowest rate") {
  const auto schedule = from("{kind: one_cycle, warmup_steps: 11}");
  REQUIRE(schedule->rate(1.0, 0, 101) == Approx(1.0 / 25));
  REQUIRE(schedule->rate(1.0, 5, 101) == Approx((1.0 / 25 + 1.0) / 2));
  REQUIRE(schedule->rate(1.0, 10, 101) == Approx(1.0));
  REQUIRE(schedule->rate(1.0, 55, 101) == Approx((1.0 + 1.0 / 25e4) / 2));
  REQUIRE(schedule->rate(1.0, 100, 101) == Approx(1.0 / 25e4));
  REQUIRE(schedule->rate(1.0, 1000, 101) == Approx(1.0 / 25e4));
  // beta1 goes the other way.
  REQUIRE(schedule->beta1(0, 101).value() == Approx(0.95));
  REQUIRE(schedule->beta1(5, 101).value() == Approx(0.9));
  REQUIRE(schedule->beta1(10, 101).value() == Approx(0.85));
  REQUIRE(schedule->beta1(55, 101).value() == Approx(0.9));
  REQUIRE(schedule->beta1(100, 101).value() == Approx(0.95));
  REQUIRE_FALSE(from("{kind: one_cycle, cycle_momentum: false}")->beta1(0, 101));
  REQUIRE_FALSE(from("constant")->beta1(0, 101));
}

TEST_CASE("one cycle survives a run that is shorter than its warm-up") {
  const auto schedule = from("{kind: one_cycle, warmup_steps: 10}");
  for (int64_t step = 0; step < 4; ++step) REQUIRE(std::isfinite(schedule->rate(1.0, step, 4)));
  REQUIRE(from("{kind: one_cycle, warmup_steps: 1}")->rate(1.0, 0, 1) == 1.0);
}

TEST_CASE("an inverse square root schedule meets its warm-up at the peak") {
  const auto schedule = from("{kind: inverse_sqrt, warmup_steps: 100, start_lr: 1e-7}");
  REQUIRE(schedule->rate(1e-3, 0, 1000) == Approx(1e-7));
  REQUIRE(schedule->rate(1e-3, 50, 1000) == Approx((1e-7 + 1e-3) / 2));
  REQUIRE(schedule->rate(1e-3, 100, 1000) == Approx(1e-3));
  REQUIRE(schedule->rate(1e-3, 400, 1000) == Approx(5e-4));
  REQUIRE(std::isfinite(from("inverse_sqrt")->rate(1e-3, 0, 10)));
}

TEST_CASE("every schedule is listed under its own name and gives finite rates from its defaults") {
  for (const auto& kind : schedule_kinds()) {
    const auto schedule = kind.make();
    REQUIRE(schedule->kind() == kind.name);
    for (const int64_t step : {0, 1, 50, 99, 100}) {
      const double rate = schedule->rate(1e-3, step, 100);
      CAPTURE(kind.name, step);
      REQUIRE(std::isfinite(rate));
      REQUIRE(rate >= 0);
      REQUIRE(rate <= 1e-3 * (1 + 1e-12));
    }
  }
}
