#include "core/config.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "tests/catch.h"

using namespace primal;

namespace {

class Shape {
 public:
  virtual ~Shape() = default;
  virtual void fields(Fields& f) = 0;
  virtual std::string_view kind() const = 0;
};

class Circle : public Shape {
 public:
  void fields(Fields& f) override { f.field("radius", radius, positive(), "distance to the rim"); }
  std::string_view kind() const override { return "circle"; }
  double radius = 1.0;
};

class Polygon : public Shape {
 public:
  void fields(Fields& f) override {
    f.field("corners", corners, at_least(3), "how many corners");
    f.field("label", label, "a name | in print");
    f.field("radius", radius, positive(), "distance to the corners");
  }
  std::string_view kind() const override { return "polygon"; }
  int64_t corners = 4;
  std::string label;
  double radius = 1.0;
};

class Point : public Shape {
 public:
  void fields(Fields&) override {}
  std::string_view kind() const override { return "point"; }
};

constexpr Kind<Shape> kShapes[] = {
    {"circle", "A round shape.",
     []() -> std::unique_ptr<Shape> { return std::make_unique<Circle>(); }},
    {"polygon", "A regular shape.",
     []() -> std::unique_ptr<Shape> { return std::make_unique<Polygon>(); }},
    {"point", "No extent.", []() -> std::unique_ptr<Shape> { return std::make_unique<Point>(); }},
};

enum class Protocol { kPaper, kValidation };

struct Layer {
  std::unique_ptr<Shape> attention = std::make_unique<Point>();
  int64_t width = 8;

  void fields(Fields& f) {
    f.variant<Shape>("attention", attention, kShapes, "shape of the layer");
    f.field("width", width, at_least(1), "units");
  }
};

struct Train {
  int64_t epochs = 100;
  int64_t batch = 16;
  double dropout = 0.1;
  double lr = 1e-3;
  double limit = 1.0;

  void fields(Fields& f) {
    f.field("epochs", epochs, at_least(1), "passes over the training set");
    f.field("batch", batch, between(1, 4096), "cases per step");
    f.field("dropout", dropout, half_open(0, 1), "share of units dropped");
    f.field("lr", lr, positive(), "learning rate");
    f.field("limit", limit, at_most(std::numeric_limits<double>::infinity()), "largest norm");
  }
  void check() const {
    if (batch > 64 && epochs > 1000) fail("train.batch and train.epochs are both large");
  }
};

struct Optimizer {
  std::string kind = "radam";
  double lr = 1e-3;

  void fields(Fields& f) {
    f.field("kind", kind, "which optimizer");
    f.field("lr", lr, positive(), "learning rate");
  }
};

struct Config {
  std::string task = "uea";
  int64_t seed = 1;
  bool deterministic = true;
  Protocol protocol = Protocol::kPaper;
  Train train;
  std::vector<Layer> layers;
  std::unique_ptr<Shape> outline;
  Optimizer optimizer;

  void fields(Fields& f) {
    f.field("task", task, "what to learn");
    f.field("seed", seed, {}, "of the random generator");
    f.field("deterministic", deterministic, "same bits each time");
    f.choice("protocol", protocol,
             {{"paper", Protocol::kPaper}, {"validation", Protocol::kValidation}}, "model choice");
    f.section("train", train, "the training loop");
    f.list("layers", layers, "from input to output");
    f.variant<Shape>("outline", outline, kShapes, "shape of the whole");
    f.section("optimizer", optimizer, "the optimizer");
  }
  void check() const {
    if (task == "impossible") fail("task 'impossible' cannot be learnt");
  }
};

using Overrides = std::vector<std::string>;

Config read(std::string_view yaml, const Overrides& overrides = {}) {
  Config config;
  read_config(ConfigSource::from_string(yaml, "c.yaml", overrides), config);
  return config;
}

/// The message with which reading fails; empty if it does not.
std::string error_of(std::string_view yaml, const Overrides& overrides = {}) {
  try {
    read(yaml, overrides);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

bool is_usage_error(std::string_view yaml, const Overrides& overrides) {
  try {
    read(yaml, overrides);
  } catch (const UsageError&) {
    return true;
  } catch (const Error&) {
  }
  return false;
}

template <class T>
const T& as(const std::unique_ptr<Shape>& shape) {
  return dynamic_cast<const T&>(*shape);
}

const char* const kFull = R"(# a comment
task: "two words"
seed: -7
deterministic: false
protocol: validation
train:
  epochs: 3
  dropout: 0
  lr: 1e-3
  limit: .inf
layers:
  - attention: circle
  - attention: {kind: polygon, corners: 6, label: 'it''s'}
    width: 2
  - {}
outline: {kind: circle, radius: 2.5}
)";

}  // namespace

TEST_CASE("config: a file sets what it gives and leaves the rest at its defaults") {
  const Config c = read(kFull);
  CHECK(c.task == "two words");
  CHECK(c.seed == -7);
  CHECK_FALSE(c.deterministic);
  CHECK(c.protocol == Protocol::kValidation);
  CHECK(c.train.epochs == 3);
  CHECK(c.train.batch == 16);
  CHECK(c.train.dropout == 0.0);
  CHECK(c.train.lr == 1e-3);
  CHECK(c.train.limit == std::numeric_limits<double>::infinity());
  REQUIRE(c.layers.size() == 3);
  CHECK(as<Circle>(c.layers[0].attention).radius == 1.0);
  CHECK(as<Polygon>(c.layers[1].attention).corners == 6);
  CHECK(as<Polygon>(c.layers[1].attention).label == "it's");
  CHECK(c.layers[1].width == 2);
  CHECK(c.layers[2].attention->kind() == "point");
  CHECK(as<Circle>(c.outline).radius == 2.5);
}

TEST_CASE("config: empty files, comments and empty sections leave every default") {
  for (const char* yaml :
       {"", "\n", "# only a comment\n", "---\n", "{}", "train:\n", "train: {}"}) {
    INFO(yaml);
    const Config c = read(yaml);
    CHECK(c.task == "uea");
    CHECK(c.train.epochs == 100);
    CHECK(c.outline == nullptr);
  }
  CHECK(ConfigSource::from_string("# only a comment\n", "c.yaml").empty());
  CHECK_FALSE(ConfigSource::from_string("", "c.yaml", {"seed=1"}).empty());
}

TEST_CASE("config: numbers are read in all their YAML forms") {
  for (const auto& [text, value] : std::vector<std::pair<std::string, double>>{{"1e-3", 1e-3},
                                                                               {"2", 2.0},
                                                                               {"+.5", 0.5},
                                                                               {"5.", 5.0},
                                                                               {"1.5E+2", 150.0},
                                                                               {"007", 7.0}}) {
    INFO(text);
    CHECK(read("train: {lr: " + text + "}").train.lr == value);
  }
  CHECK(read("seed: +5").seed == 5);
  CHECK(read("seed: 9223372036854775807").seed == std::numeric_limits<int64_t>::max());
  CHECK(read("seed: -9223372036854775808").seed == std::numeric_limits<int64_t>::min());
}

TEST_CASE("config: a wrong type names file, line, key, expected type and the value found") {
  CHECK(error_of("train:\n  epochs: abc\n") ==
        "c.yaml:2: train.epochs must be an integer, got 'abc'");
  CHECK(error_of("train:\n  epochs: 1.5\n") ==
        "c.yaml:2: train.epochs must be an integer, got '1.5'");
  CHECK(error_of("train: {epochs: 1e3}") == "c.yaml:1: train.epochs must be an integer, got '1e3'");
  CHECK(error_of("train: {epochs: '5'}") ==
        "c.yaml:1: train.epochs must be an integer, got the text '5'");
  CHECK(error_of("train: {epochs: }") == "c.yaml:1: train.epochs must be an integer, got nothing");
  CHECK(error_of("train: {epochs: [1]}") ==
        "c.yaml:1: train.epochs must be an integer, got a list");
  CHECK(error_of("train: {epochs: {a: 1}}") ==
        "c.yaml:1: train.epochs must be an integer, got a map");
  CHECK(error_of("train: {lr: fast}") == "c.yaml:1: train.lr must be a number, got 'fast'");
  CHECK(error_of("train: {lr: 0x10}") == "c.yaml:1: train.lr must be a number, got '0x10'");
  CHECK(error_of("train: {lr: 1,5}") != "");
  CHECK(error_of("train: {lr: inf}") == "c.yaml:1: train.lr must be a number, got 'inf'");
  CHECK(error_of("train: {lr: 1 2}") == "c.yaml:1: train.lr must be a number, got '1 2'");
  CHECK(error_of("deterministic: yes") ==
        "c.yaml:1: deterministic must be true or false, got 'yes'");
  CHECK(error_of("deterministic: 'true'") ==
        "c.yaml:1: deterministic must be true or false, got the text 'true'");
  CHECK(error_of("task:\n") == "c.yaml:1: task must be a text (an empty one is ''), got nothing");
  CHECK(error_of("task: {a: b}") ==
        "c.yaml:1: task must be a text (an empty one is ''), got a map");
  CHECK(error_of("train: 3") == "c.yaml:1: train must be a map, got '3'");
  CHECK(error_of("train: [3]") == "c.yaml:1: train must be a map, got a list");
  CHECK(error_of("layers: circle") == "c.yaml:1: layers must be a list, got 'circle'");
  CHECK(error_of("layers:\n") == "c.yaml:1: layers must be a list, got nothing");
  CHECK(error_of("layers:\n- {}\n- circle\n") == "c.yaml:3: layers.1 must be a map, got 'circle'");
  CHECK(error_of("[a, b]") == "c.yaml:1: expected a map of keys, got a list");
  CHECK(error_of("just words") == "c.yaml:1: expected a map of keys, got 'just words'");
}

TEST_CASE("config: texts may look like numbers") {
  CHECK(read("task: 12").task == "12");
  CHECK(read("task: true").task == "true");
  CHECK(read("task: ''").task == "");
  CHECK(read("task: 'null'").task == "null");
}

TEST_CASE("config: values out of bounds are refused with the bound") {
  CHECK(error_of("train:\n  epochs: 0\n") == "c.yaml:2: train.epochs must be at least 1, got 0");
  CHECK(error_of("train: {batch: 4097}") ==
        "c.yaml:1: train.batch must be between 1 and 4096, got 4097");
  CHECK(error_of("train: {dropout: 1}") ==
        "c.yaml:1: train.dropout must be at least 0 and less than 1, got 1");
  CHECK(error_of("train: {dropout: -0.1}") ==
        "c.yaml:1: train.dropout must be at least 0 and less than 1, got -0.1");
  CHECK(error_of("train: {lr: 0}") == "c.yaml:1: train.lr must be more than 0, got 0");
  CHECK(read("train: {batch: 4096, dropout: 0.999, epochs: 1}").train.batch == 4096);
}

TEST_CASE("config: numbers that are not finite or do not fit are refused") {
  CHECK(error_of("train: {lr: .inf}") == "c.yaml:1: train.lr must be a finite number, got '.inf'");
  CHECK(error_of("train: {lr: .nan}") == "c.yaml:1: train.lr must be a finite number, got '.nan'");
  CHECK(error_of("train: {limit: .nan}") ==
        "c.yaml:1: train.limit must be a finite number, got '.nan'");
  CHECK(error_of("train: {limit: -.inf}") ==
        "c.yaml:1: train.limit must be a finite number, got '-.inf'");
  CHECK(error_of("train: {lr: 1e999}") ==
        "c.yaml:1: train.lr must be a number that fits in 64 bits, got '1e999'");
  CHECK(error_of("seed: 9223372036854775808") ==
        "c.yaml:1: seed must be an integer that fits in 64 bits, got '9223372036854775808'");
}

TEST_CASE("config: an unknown key is refused with its line and the nearest known key") {
  CHECK(error_of("train:\n  epochs: 2\n  epoch: 5\n") ==
        "c.yaml:3: key 'train.epoch' is not known; did you mean 'train.epochs'?");
  CHECK(error_of("sede: 5\n") == "c.yaml:1: key 'sede' is not known; did you mean 'seed'?");
  CHECK(error_of("train: {batch_size: 5}\n") ==
        "c.yaml:1: key 'train.batch_size' is not known; did you mean 'train.batch'?");
  CHECK(error_of("train: {zzzz: 5}\n") ==
        "c.yaml:1: key 'train.zzzz' is not known; known keys here: epochs, batch, dropout, lr, "
        "limit");
  CHECK(error_of("layers:\n- {}\n- attention: circle\n  widht: 3\n") ==
        "c.yaml:4: key 'layers.1.widht' is not known; did you mean 'layers.1.width'?");
  CHECK(error_of("outline: {kind: circle, corners: 3}\n") ==
        "c.yaml:1: key 'outline.corners' is not known; known keys here: kind, radius");
  CHECK(error_of("layers:\n- attention:\n    kind: polygon\n    corner: 3\n") ==
        "c.yaml:4: key 'layers.0.attention.corner' is not known; did you mean "
        "'layers.0.attention.corners'?");
  // The key's own line counts, not that of its value.
  CHECK(error_of("seeds:\n\n\n  5\n") ==
        "c.yaml:1: key 'seeds' is not known; did you mean 'seed'?");
}

TEST_CASE("config: choices and kinds list the valid names and the nearest one") {
  CHECK(error_of("protocol: papre") ==
        "c.yaml:1: protocol must be one of paper, validation; got 'papre'; did you mean 'paper'?");
  CHECK(error_of("protocol: xyz") ==
        "c.yaml:1: protocol must be one of paper, validation; got 'xyz'");
  CHECK(error_of("protocol: [paper]") ==
        "c.yaml:1: protocol must be one of paper, validation; got a list");
  CHECK(error_of("layers:\n- attention: circel\n") ==
        "c.yaml:2: layers.0.attention must be one of circle, polygon, point; got 'circel'; did you "
        "mean 'circle'?");
  CHECK(error_of("outline: {kind: square}") ==
        "c.yaml:1: outline.kind must be one of circle, polygon, point; got 'square'");
  CHECK(error_of("outline: {radius: 2}") ==
        "c.yaml:1: outline must have a 'kind', one of circle, polygon, point");
  CHECK(error_of("outline:\n") ==
        "c.yaml:1: outline must be one of circle, polygon, point; got nothing");
}

TEST_CASE("config: a variant without kind keeps the object in place, another kind starts afresh") {
  Config c;
  auto polygon = std::make_unique<Polygon>();
  polygon->corners = 9;
  c.outline = std::move(polygon);
  read_config(ConfigSource::from_string("outline: {label: x}", "c.yaml"), c);
  CHECK(as<Polygon>(c.outline).corners == 9);
  CHECK(as<Polygon>(c.outline).label == "x");
  read_config(ConfigSource::from_string("outline: polygon", "c.yaml"), c);
  CHECK(as<Polygon>(c.outline).corners == 9);
  read_config(ConfigSource::from_string("outline: circle", "c.yaml"), c);
  CHECK(as<Circle>(c.outline).radius == 1.0);
  read_config(ConfigSource::from_string("outline: polygon", "c.yaml"), c);
  CHECK(as<Polygon>(c.outline).corners == 4);
}

TEST_CASE("config: a key given twice is refused with both lines") {
  CHECK(error_of("seed: 1\ntask: a\nseed: 2\n") ==
        "c.yaml:3: key 'seed' is given twice, first on line 1");
  CHECK(error_of("train:\n  lr: 1\n  lr: 1\n") ==
        "c.yaml:3: key 'lr' is given twice, first on line 2");
}

TEST_CASE("config: anchors copy a value, also into places that overrides then change") {
  const std::string yaml =
      "layers:\n- attention: &shape {kind: circle, radius: 3}\n- attention: *shape\n";
  CHECK(as<Circle>(read(yaml).layers[1].attention).radius == 3.0);
  const Config c = read(yaml, {"layers.1.attention.radius=4"});
  CHECK(as<Circle>(c.layers[0].attention).radius == 3.0);
  CHECK(as<Circle>(c.layers[1].attention).radius == 4.0);
}

TEST_CASE("config: broken YAML is refused in one line with file, line and column") {
  const std::vector<std::string> broken = {
      "train:\n\tepochs: 3\n",
      "train: {epochs: 3\n",
      "a: b: c\n",
      "seed: [1, 2\n",
      "seed: 'open\n",
      "seed: \"open\n",
      "seed: 1\n- 2\n",
      "]",
      "}",
      "a: *missing\n",
      "seed: @x\n",
      "seed: %x\n",
      "task: \"\\q\"\n",
      "task: \"\\ud800\"\n",
      "? [a]\n: b\n",
      "{a: 1}}\n",
      "a: |\n b\n  c\n d\ne",
      "%YAML 9\n---\n",
      "seed: 1\n\xff\n",
      "\xfe\xff\0a",
  };
  for (const std::string& yaml : broken) {
    INFO(yaml);
    const std::string message = error_of(yaml);
    INFO(message);
    CHECK(message.starts_with("c.yaml:"));
    CHECK(message.find('\n') == std::string::npos);
  }
  CHECK(error_of("seed: 1\ntask: 'open\n") == "c.yaml:3:2: illegal EOF in scalar");
  // The open quote must not swallow the lines after it without a word.
  CHECK(error_of("task: \"open\nseed: 3\n").ends_with("illegal EOF in scalar"));
  CHECK(error_of("", {"task='open"}) == "--set task='open: illegal EOF in scalar");
  CHECK(error_of("seed: 1\ntask: \xff\n") == "c.yaml:2:7: text is not UTF-8");
  CHECK(error_of("task: \xed\xa0\x80\n") == "c.yaml:1:7: text is not UTF-8");
  CHECK(error_of("task: \xc0\xaf\n") == "c.yaml:1:7: text is not UTF-8");
  CHECK(error_of("task: a\x04\nseed: x\n") == "c.yaml:1:8: control character 0x04");
  CHECK(error_of("task: \"a\\Nb\"\n") ==
        R"(c.yaml:1: text is not UTF-8; instead of \N and \_ write \u0085 and \u00a0)");
  CHECK(error_of("task: \"\\0\"\n") == "c.yaml:1: text holds a NUL character");
  CHECK(error_of("seed: !!int 1\n") == "c.yaml:1: tags are not supported");
  CHECK(error_of("? [a]\n: b\n") == "c.yaml:1: a key must be a word, got a list");
  CHECK(error_of("seed: 1\n---\nseed: 2\n") ==
        "c.yaml:2: expected the end of the text, found a second document or stray text");
  CHECK(error_of("train:\n\tepochs: 3\n")
            .find("(line 2 is indented with a tab; YAML wants spaces)") != std::string::npos);
  CHECK(error_of("a: &a [*a]\n") == "c.yaml:1: an alias stands inside what it names");
}

TEST_CASE("config: a byte order mark, Windows line ends and other scripts are read") {
  CHECK(read("\xef\xbb\xbfseed: 5\n").seed == 5);
  CHECK(read("seed: 5\r\ntask: a\r\n").task == "a");
  CHECK(read("task: \u00e9\u65e5\U0001f600\n").task == "\u00e9\u65e5\U0001f600");
}

TEST_CASE("config: deep, huge and exploding texts are refused, not followed") {
  std::string maps, dashes;
  for (int i = 0; i < 5000; ++i) {
    maps += "{a: ";
    dashes += "- ";
  }
  CHECK(error_of(std::string(100'000, '[')) == "c.yaml:1: nested more than 64 levels deep");
  CHECK(error_of(maps) == "c.yaml:1: nested more than 64 levels deep");
  CHECK(error_of(dashes) == "c.yaml:1: nested more than 64 levels deep");
  CHECK(error_of(std::string((1 << 20) + 1, ' ')) ==
        "c.yaml: larger than 1048576 bytes; is this a configuration?");
  std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 10; ++i) {
    laughs += fmt::format("a{0}: &a{0} [*a{1}, *a{1}, *a{1}, *a{1}, *a{1}]\n", i, i - 1);
  }
  CHECK(error_of(laughs).find("more than 10000 values") != std::string::npos);
  std::string path = "a";
  for (int i = 0; i < 100'000; ++i) path += ".a";
  CHECK(error_of("", {path + "=1"}).find("nested more than 64 levels deep") != std::string::npos);
  CHECK(
      error_of("", {"seed=" + std::string(100'000, '[')}).find("nested more than 64 levels deep") !=
      std::string::npos);
}

TEST_CASE("config: long and unprintable values are shown short and escaped") {
  const std::string message = error_of("protocol: \"a\\nb\\e[31m" + std::string(5000, 'x') + "\"");
  CHECK(message.find("a\\nb\\x1b[31mxxx") != std::string::npos);
  CHECK(message.size() < 200);
}

TEST_CASE("config: overrides apply in order over the file") {
  const Config c = read(kFull, {"train.epochs=5", "train.epochs=6", "train.lr=2e-4", "task=x=y",
                                "layers.0.width=3", "layers.1.attention.corners=7"});
  CHECK(c.train.epochs == 6);
  CHECK(c.train.lr == 2e-4);
  CHECK(c.task == "x=y");
  CHECK(c.layers[0].width == 3);
  CHECK(as<Polygon>(c.layers[1].attention).corners == 7);
  CHECK(as<Polygon>(c.layers[1].attention).label == "it's");
  CHECK(read("", {"train.epochs=5"}).train.epochs == 5);
  CHECK(read("train:\n", {"train.epochs=5"}).train.epochs == 5);
}

TEST_CASE("config: an override's value may be any YAML") {
  const Config c =
      read(kFull, {"layers=[{attention: circle}, {attention: {kind: polygon, corners: 5}}]",
                   "layers.0.width=3", "task=''"});
  REQUIRE(c.layers.size() == 2);
  CHECK(c.layers[0].width == 3);
  CHECK(as<Polygon>(c.layers[1].attention).corners == 5);
  CHECK(c.task == "");
  CHECK(read(kFull, {"layers=[]"}).layers.empty());
}

TEST_CASE("config: an override below a shorthand expands it") {
  const Config c = read("layers:\n- attention: circle\n", {"layers.0.attention.radius=5"});
  CHECK(as<Circle>(c.layers[0].attention).radius == 5.0);
  CHECK(error_of("train: 3", {"train.epochs=3"}) ==
        "--set train.epochs=3: train must be a map, got '3'");
}

TEST_CASE("config: an override of kind drops the old kind's keys but no override") {
  const std::string yaml = "outline: {kind: polygon, corners: 5, radius: 2}\n";
  CHECK(as<Circle>(read(yaml, {"outline.kind=circle"}).outline).radius == 1.0);
  CHECK(as<Circle>(read(yaml, {"outline.kind=circle", "outline.radius=3"}).outline).radius == 3.0);
  CHECK(as<Circle>(read(yaml, {"outline.radius=3", "outline.kind=circle"}).outline).radius == 3.0);
  CHECK(as<Polygon>(read(yaml, {"outline.kind=polygon"}).outline).corners == 5);
  CHECK(as<Circle>(read(yaml, {"outline=circle"}).outline).radius == 1.0);
  CHECK(
      error_of(yaml, {"outline.corners=7", "outline.kind=circle"}) ==
      "--set outline.corners=7: key 'outline.corners' is not known; known keys here: kind, radius");
  // An ordinary struct may have a key called kind, whose value changes nothing else.
  const Config c = read("optimizer: {kind: radam, lr: 0.5}", {"optimizer.kind=adam"});
  CHECK(c.optimizer.kind == "adam");
  CHECK(c.optimizer.lr == 0.5);
}

TEST_CASE("config: errors of an override name it and are usage errors") {
  CHECK(error_of(kFull, {"train.epochs=abc"}) ==
        "--set train.epochs=abc: train.epochs must be an integer, got 'abc'");
  CHECK(error_of(kFull, {"train.epoch=3"}) ==
        "--set train.epoch=3: key 'train.epoch' is not known; did you mean 'train.epochs'?");
  CHECK(error_of(kFull, {"trian.epochs=3"}) ==
        "--set trian.epochs=3: key 'trian' is not known; did you mean 'train'?");
  CHECK(error_of(kFull, {"train.lr="}) ==
        "--set train.lr=: train.lr must be a number, got nothing");
  CHECK(error_of(kFull, {"layers.3.width=3"}) ==
        "--set layers.3.width=3: layers has 3 entries, there is no layers.3");
  CHECK(error_of(kFull, {"layers.-1.width=3"}) ==
        "--set layers.-1.width=3: layers is a list, expected an index after it, got '-1'");
  CHECK(error_of("", {"layers.0.width=3"}) ==
        "--set layers.0.width=3: layers is not a list in the file, there is no layers.0; give all "
        "of it, as in --set 'layers=[...]'");
  CHECK(error_of(kFull, {"seed.a=3"}) == "--set seed.a=3: seed must be an integer, got a map");
  CHECK(error_of(kFull, {"seed=[1"}).starts_with("--set seed=[1: "));
  for (const char* malformed : {"foo", "=3", "", "a..b=3", ".a=3", "a.=3"}) {
    INFO(malformed);
    CHECK(error_of(kFull, {malformed}) ==
          fmt::format("--set {}: expected KEY=VALUE with a dotted key such as train.epochs=10",
                      malformed));
    CHECK(is_usage_error(kFull, {malformed}));
  }
  CHECK(is_usage_error(kFull, {"train.epochs=abc"}));
  CHECK(is_usage_error(kFull, {"trian.epochs=3"}));
  CHECK(is_usage_error(kFull, {"seed=[1"}));
  CHECK_FALSE(is_usage_error("train: {epochs: abc}", {"seed=3"}));
}

TEST_CASE("config: a struct's own check runs after reading and is prefixed by the place") {
  CHECK(error_of("task: impossible") == "c.yaml: task 'impossible' cannot be learnt");
  CHECK(error_of("seed: 1\ntrain:\n  batch: 65\n  epochs: 1001\n") ==
        "c.yaml:3: train.batch and train.epochs are both large");
  // Unknown keys come first: a misspelt key may be why the check fails.
  CHECK(error_of("task: impossible\nsede: 1\n") ==
        "c.yaml:2: key 'sede' is not known; did you mean 'seed'?");
}

TEST_CASE("config: a source answers which keys are given") {
  const auto source = ConfigSource::from_string(kFull, "c.yaml", {"optimizer.lr=2"});
  CHECK(source.name() == "c.yaml");
  CHECK(source.has("train.epochs"));
  CHECK(source.has("layers.1.attention.corners"));
  CHECK(source.has("optimizer.lr"));
  CHECK_FALSE(source.has("train.batch"));
  CHECK_FALSE(source.has("layers.3"));
  CHECK_FALSE(source.has("layers.x"));
  CHECK_FALSE(source.has("seed.x"));
  CHECK(source.text_at("task") == "two words");
  CHECK(source.text_at("layers.0.attention") == "circle");
  CHECK(source.text_at("missing", "otherwise") == "otherwise");
  CHECK_THROWS_WITH(source.text_at("train"), "c.yaml:7: train must be a text, got a map");
}

TEST_CASE("config: files are read from disk and unreadable ones refused clearly") {
  const auto folder = std::filesystem::temp_directory_path() /
                      fmt::format("primal-config-{}", std::random_device{}());
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "c.yaml").string();
  std::ofstream(path) << "seed: 12\nsede: 1\n";
  Config c;
  CHECK_THROWS_WITH(read_config(ConfigSource::from_file(path), c),
                    path + ":2: key 'sede' is not known; did you mean 'seed'?");
  const std::string missing = (folder / "missing.yaml").string();
  CHECK_THROWS_WITH(ConfigSource::from_file(missing),
                    missing + ": cannot be read: No such file or directory");
  CHECK_THROWS_WITH(ConfigSource::from_file(folder),
                    folder.string() + ": cannot be read: it is a folder");
  std::filesystem::remove_all(folder);
}

TEST_CASE("config: the printed configuration is complete, ordered and documented by its values") {
  Config c = read(kFull);
  CHECK(print_config(c) == R"(task: "two words"
seed: -7
deterministic: false
protocol: validation
train:
  epochs: 3
  batch: 16
  dropout: 0.0
  lr: 0.001
  limit: .inf
layers:
  - attention: {kind: circle, radius: 1.0}
    width: 8
  - attention: {kind: polygon, corners: 6, label: "it's", radius: 1.0}
    width: 2
  - attention: {kind: point}
    width: 8
outline: {kind: circle, radius: 2.5}
optimizer:
  kind: radam
  lr: 0.001
)");
  Config empty;
  CHECK(print_config(empty).find("\nlayers: []\n") != std::string::npos);
  CHECK(print_config(empty).find("outline") == std::string::npos);
}

TEST_CASE("config: reading a printed configuration back gives the same values") {
  const std::vector<std::string> texts = {
      "",       " ",      "null", "~",     "true",       "Yes",
      "12",     "1e-3",   "a: b", "a #b",  "-",          "- a",
      "?",      "!x",     "&x",   "*x",    "%x",         "@x",
      "`x",     "[x]",    "{x}",  "a,b",   "'",          "\"",
      "\\",     "\\n",    "a\nb", " lead", "end ",       "\t",
      "\x01",   "\x7f",   "a\rb", "---",   "...",        "<<",
      "=",      "\u00e9", "|",    ">",     "a\n\n",      "\u0085",
      "\u2028", "\ufeff", "/a/b", "C:\\x", "\U0001f600", std::string(3000, 'x')};
  for (const std::string& text : texts) {
    INFO(text);
    Config c;
    c.task = text;
    auto polygon = std::make_unique<Polygon>();
    polygon->label = text;
    c.outline = std::move(polygon);
    const Config back = read(print_config(c));
    CHECK(back.task == text);
    CHECK(as<Polygon>(back.outline).label == text);
  }
  std::mt19937_64 random(7);
  for (int i = 0; i < 500; ++i) {
    Config c;
    c.train.lr = std::ldexp(static_cast<double>(random() >> 11 | 1),
                            static_cast<int>(random() % 1000) - 500);
    c.seed = static_cast<int64_t>(random());
    const Config back = read(print_config(c));
    CHECK(back.train.lr == c.train.lr);
    CHECK(back.seed == c.seed);
  }
  for (const double v : {5e-324, 1.7976931348623157e308, 1e20, 1e-5, 123456789.0}) {
    Config c;
    c.train.lr = v;
    CHECK(read(print_config(c)).train.lr == v);
  }
}

TEST_CASE("config: the documentation lists key, type, default, bounds and meaning of every field") {
  Config c;
  CHECK(document_config(c) ==
        R"(| Key | Type | Default | Allowed | Meaning |
|---|---|---|---|---|
| `task` | text | `uea` |  | what to learn |
| `seed` | integer | `1` |  | of the random generator |
| `deterministic` | boolean | `true` | `true`, `false` | same bits each time |
| `protocol` | choice | `paper` | `paper`, `validation` | model choice |
| `train` | map |  |  | the training loop |
| `train.epochs` | integer | `100` | at least 1 | passes over the training set |
| `train.batch` | integer | `16` | between 1 and 4096 | cases per step |
| `train.dropout` | number | `0.1` | at least 0 and less than 1 | share of units dropped |
| `train.lr` | number | `0.001` | more than 0 | learning rate |
| `train.limit` | number | `1` | at most inf | largest norm |
| `layers` | list of maps | 0 entries |  | from input to output |
| `layers.N.attention` | kind | `point` | `circle`, `polygon`, `point` | shape of the layer |
| `layers.N.width` | integer | `8` | at least 1 | units |
| `outline` | kind |  | `circle`, `polygon`, `point` | shape of the whole |
| `optimizer` | map |  |  | the optimizer |
| `optimizer.kind` | text | `radam` |  | which optimizer |
| `optimizer.lr` | number | `0.001` | more than 0 | learning rate |

### `layers.N.attention: circle`

A round shape.

| Key | Type | Default | Allowed | Meaning |
|---|---|---|---|---|
| `layers.N.attention.radius` | number | `1` | more than 0 | distance to the rim |

### `layers.N.attention: polygon`

A regular shape.

| Key | Type | Default | Allowed | Meaning |
|---|---|---|---|---|
| `layers.N.attention.corners` | integer | `4` | at least 3 | how many corners |
| `layers.N.attention.label` | text | `""` |  | a name \| in print |
| `layers.N.attention.radius` | number | `1` | more than 0 | distance to the corners |

### `layers.N.attention: point`

No extent.

No keys of its own.

### `outline: circle`

A round shape.

| Key | Type | Default | Allowed | Meaning |
|---|---|---|---|---|
| `outline.radius` | number | `1` | more than 0 | distance to the rim |

### `outline: polygon`

A regular shape.

| Key | Type | Default | Allowed | Meaning |
|---|---|---|---|---|
| `outline.corners` | integer | `4` | at least 3 | how many corners |
| `outline.label` | text | `""` |  | a name \| in print |
| `outline.radius` | number | `1` | more than 0 | distance to the corners |

### `outline: point`

No extent.

No keys of its own.
)");
  CHECK(c.outline == nullptr);
}

TEST_CASE("config: the nearest word is found only where one is near") {
  const std::vector<std::string_view> words = {"epochs", "batch", "lr", "JapaneseVowels"};
  CHECK(nearest("epoch", words) == "epochs");
  CHECK(nearest("eopchs", words) == "epochs");
  CHECK(nearest("japanesevowels", words) == "JapaneseVowels");
  CHECK(nearest("Japanese", words) == "JapaneseVowels");
  CHECK(nearest("batch_size", words) == "batch");
  CHECK(nearest("rl", words) == "lr");
  CHECK(nearest("x", words) == "");
  CHECK(nearest("", words) == "");
  CHECK(nearest("learning", words) == "");
  CHECK(nearest("epochs", {}) == "");
  CHECK(nearest("lr", std::vector<std::string_view>{"l", "ls"}) == "l");
}
