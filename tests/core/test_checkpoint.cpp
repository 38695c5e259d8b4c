#include "core/checkpoint.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/files.h"
#include "tests/catch.h"

using namespace primal;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "primal-checkpoint-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = fs::canonical(name);
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// No file can grow beyond `bytes` while this lives: the nearest thing to a full disk that needs no
// rights. The signal that would end the process is ignored, so that write() fails instead.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before_) == 0);
    handler_ = signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

// Permission bits mean nothing to root, so root works as another user while this lives.
class ReadOnlyFolder {
 public:
  explicit ReadOnlyFolder(fs::path path) : path_(std::move(path)) {
    fs::permissions(path_.parent_path(), fs::perms(0755));
    fs::permissions(path_, fs::perms(0555));
    if (geteuid() == 0) dropped_ = seteuid(65534) == 0;
    effective_ = access(path_) != 0;
  }
  ~ReadOnlyFolder() {
    if (dropped_) [[maybe_unused]]
      const int result = seteuid(0);
    fs::permissions(path_, fs::perms(0755));
  }
  bool effective() const { return effective_; }

 private:
  static int access(const fs::path& path) {
    return faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS);
  }
  fs::path path_;
  bool dropped_ = false;
  bool effective_ = false;
};

template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void overwrite(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

// A checkpoint whose numbers all tell its step.
struct Sample {
  explicit Sample(int64_t step, size_t count = 64)
      : weights(count, static_cast<float>(step)), moments(2 * count, 0.5f) {
    contents.step = step;
    contents.model = {stored("layers.0.weight", {static_cast<int64_t>(count)}, weights)};
    contents.optimizer = {stored("m", {static_cast<int64_t>(2 * count)}, moments)};
    contents.metadata = {{"classes", "[\"a\",\"b\"]"}};
    contents.config_yaml = "task: uea\nseed: 1\n";
    contents.state = {{"epoch", step / 10}, {"lr", 0.1 + 0.2}, {"rng", 18446744073709551615u}};
  }
  std::vector<float> weights;
  std::vector<float> moments;
  CheckpointContents contents;
};

void save(CheckpointStore& store, int64_t step) {
  store.save(Sample(step).contents);
}

}  // namespace

TEST_CASE("checkpoint: everything saved is loaded again, to the last bit") {
  const TemporaryFolder run;
  CheckpointStore store(run.path() / "run");
  CHECK(store.steps().empty());
  CHECK(!store.best());
  const Sample sample(7);
  store.save(sample.contents);

  const LoadedCheckpoint loaded = load_checkpoint(run.path() / "run");
  CHECK(loaded.step == 7);
  CHECK(loaded.directory == run.path() / "run/checkpoints/step-7");
  CHECK(loaded.warnings.empty());
  CHECK(loaded.model.floats("layers.0.weight") == sample.weights);
  CHECK(loaded.model.metadata() == sample.contents.metadata);
  REQUIRE(loaded.optimizer);
  CHECK(loaded.optimizer->floats("m") == sample.moments);
  CHECK(loaded.config_yaml == sample.contents.config_yaml);
  CHECK(loaded.state == sample.contents.state);
  CHECK(loaded.state.at("lr").get<double>() == 0.1 + 0.2);
  CHECK(names_in(loaded.directory) == std::set<std::string>{"config.yaml", "model.safetensors",
                                                            "optimizer.safetensors", "state.json"});
}

TEST_CASE("checkpoint: run, checkpoints and step folder all lead to a checkpoint") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  save(store, 9);
  save(store, 10);  // later by number, though not by name
  CHECK(store.steps() == std::vector<int64_t>{9, 10});
  CHECK(load_checkpoint(run.path()).step == 10);
  CHECK(load_checkpoint(run.path() / "checkpoints/").step == 10);
  CHECK(load_checkpoint(run.path() / "checkpoints/step-9").step == 9);
  CHECK(load_checkpoint(run.path() / "checkpoints/step-9/").step == 9);

  fs::create_directory_symlink("checkpoints/step-9", run.path() / "chosen");
  CHECK(load_checkpoint(run.path() / "chosen").step == 9);
  fs::copy(run.path() / "checkpoints/step-9", run.path() / "published");
  CHECK(load_checkpoint(run.path() / "published").step == 9);
  fs::copy(run.path() / "checkpoints/step-9", run.path() / "step-11");
  CHECK(contains(message_of([&] { load_checkpoint(run.path() / "step-11"); }),
                 "step-11/state.json: step 9, the folder's name says otherwise"));
}

TEST_CASE("checkpoint: a folder without checkpoints and a missing one are errors") {
  const TemporaryFolder run;
  const std::string path = run.path().string();
  CHECK(message_of([&] { load_checkpoint(run.path()); }) ==
        "checkpoint: " + path + ": no checkpoint was saved there");
  fs::create_directories(run.path() / "checkpoints/step-x");
  fs::create_directories(run.path() / "checkpoints/step-007");
  CHECK(message_of([&] { load_checkpoint(run.path()); }) ==
        "checkpoint: " + path + "/checkpoints: no checkpoint was saved there");
  CHECK(message_of([&] { load_checkpoint(run.path(), {.best = true}); }) ==
        "checkpoint: " + path + "/checkpoints: no checkpoint was marked as best");
  CHECK(message_of([&] { load_checkpoint(run.path() / "absent"); }) ==
        "checkpoint: " + path + "/absent: No such file or directory");
  overwrite(run.path() / "file", "");
  CHECK(message_of([&] { load_checkpoint(run.path() / "file"); }) ==
        "checkpoint: " + path +
            "/file: is not a folder; expected a run, its checkpoints or one step-N");
}

TEST_CASE("checkpoint: saving a step again replaces it, even when nothing has changed") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  save(store, 5);
  Sample second(5);
  second.weights.assign(second.weights.size(), -1.0f);
  store.save(second.contents);
  CHECK(load_checkpoint(run.path()).model.floats("layers.0.weight") == second.weights);
  store.save(second.contents);
  CHECK(load_checkpoint(run.path()).model.floats("layers.0.weight") == second.weights);
  CHECK(names_in(run.path() / "checkpoints") == std::set<std::string>{"step-5"});
}

TEST_CASE("checkpoint: a damaged newest checkpoint gives way to the one before, with a warning") {
  struct Damage {
    std::string what;
    void (*apply)(const fs::path& step);
    std::string warning;
  };
  const std::vector<Damage> cases{
      {"model cut off", [](const fs::path& d) { fs::resize_file(d / "model.safetensors", 100); },
       "model.safetensors: 100 bytes, expected "},
      {"model empty", [](const fs::path& d) { overwrite(d / "model.safetensors", ""); },
       "model.safetensors: 0 bytes, expected "},
      {"optimizer empty", [](const fs::path& d) { overwrite(d / "optimizer.safetensors", ""); },
       "optimizer.safetensors: 0 bytes, expected "},
      {"one bit of the model changed",
       [](const fs::path& d) {
         std::string text = read_text_file(d / "model.safetensors");
         text.back() = static_cast<char>(text.back() ^ 1);
         overwrite(d / "model.safetensors", text);
       },
       "model.safetensors: CRC-32 "},
      {"model missing", [](const fs::path& d) { fs::remove(d / "model.safetensors"); },
       "model.safetensors: cannot open: No such file or directory"},
      {"model is a folder",
       [](const fs::path& d) {
         fs::remove(d / "model.safetensors");
         fs::create_directory(d / "model.safetensors");
       },
       "model.safetensors: is not a regular file"},
      {"config edited",
       [](const fs::path& d) { overwrite(d / "config.yaml", "task: lra\nseed: 1\n"); },
       "config.yaml: CRC-32 "},
      {"state missing", [](const fs::path& d) { fs::remove(d / "state.json"); },
       "state.json: cannot open: No such file or directory"},
      {"state empty", [](const fs::path& d) { overwrite(d / "state.json", ""); },
       "state.json: 0 bytes that are not a checkpoint's state"},
      {"state cut off",
       [](const fs::path& d) {
         fs::resize_file(d / "state.json", fs::file_size(d / "state.json") - 1);
       },
       "state.json: CRC-32 "},
      {"state edited",
       [](const fs::path& d) {
         std::string text = read_text_file(d / "state.json");
         text.replace(text.find("\"epoch\": 2"), 10, "\"epoch\": 3");
         overwrite(d / "state.json", text);
       },
       "state.json: CRC-32 "},
      {"folder empty",
       [](const fs::path& d) {
         fs::remove_all(d);
         fs::create_directory(d);
       },
       "state.json: cannot open: No such file or directory"},
  };
  for (const Damage& damage : cases) {
    INFO(damage.what);
    const TemporaryFolder run;
    CheckpointStore store(run.path());
    save(store, 10);
    save(store, 20);
    const fs::path newest = run.path() / "checkpoints/step-20";
    damage.apply(newest);

    const LoadedCheckpoint loaded = load_checkpoint(run.path());
    CHECK(loaded.step == 10);
    REQUIRE(loaded.warnings.size() == 1);
    INFO(loaded.warnings[0]);
    CHECK(contains(loaded.warnings[0], "checkpoint: " + (newest / damage.warning).string()));
    CHECK(contains(loaded.warnings[0], "; falling back to step 10"));

    // The same step asked for by name is an error, not something else.
    CHECK(contains(message_of([&] { load_checkpoint(newest); }),
                   "checkpoint: " + (newest / damage.warning).string()));

    save(store, 20);  // and a resumed run replaces it
    CHECK(load_checkpoint(run.path()).step == 20);
  }
}

TEST_CASE("checkpoint: when no checkpoint is intact the error tells about the newest") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  save(store, 1);
  save(store, 2);
  overwrite(run.path() / "checkpoints/step-1/state.json", "");
  overwrite(run.path() / "checkpoints/step-2/config.yaml", "");
  const std::string checkpoints = (run.path() / "checkpoints").string();
  CHECK(message_of([&] { load_checkpoint(run.path()); }) ==
        "checkpoint: " + checkpoints +
            "/step-2/config.yaml: 0 bytes, expected 18; none of the 2 checkpoints in " +
            checkpoints + " is intact");
}

TEST_CASE("checkpoint: a run killed while saving is resumed from the checkpoint before") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  save(store, 10);
  const fs::path checkpoints = run.path() / "checkpoints";
  // What a kill leaves: a step that was being written, a step that was being removed, a best.json.
  fs::create_directory(checkpoints / ".step-20.tmp-4242");
  overwrite(checkpoints / ".step-20.tmp-4242/model.safetensors", "half");
  fs::create_directory(checkpoints / ".step-5.del-4242");
  overwrite(checkpoints / ".step-5.del-4242/state.json", "");
  overwrite(checkpoints / ".best.json.tmp-4242", "{");
  overwrite(checkpoints / ".keep", "not ours");

  CHECK(store.steps() == std::vector<int64_t>{10});
  const LoadedCheckpoint loaded = load_checkpoint(run.path());
  CHECK(loaded.step == 10);
  CHECK(loaded.warnings.empty());
  save(store, 20);
  CHECK(names_in(checkpoints) == std::set<std::string>{".keep", "step-10", "step-20"});
}

TEST_CASE("checkpoint: a step set aside by a killed replacement is put back") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  save(store, 10);
  const fs::path checkpoints = run.path() / "checkpoints";
  fs::rename(checkpoints / "step-10", checkpoints / ".step-10.old-4242");
  save(store, 20);
  CHECK(store.steps() == std::vector<int64_t>{10, 20});
  CHECK(load_checkpoint(checkpoints / "step-10").step == 10);

  fs::copy(checkpoints / "step-10", checkpoints / ".step-10.old-4242");
  save(store, 30);  // its replacement is there: the old one goes
  CHECK(names_in(checkpoints) == std::set<std::string>{"step-10", "step-20", "step-30"});
}

TEST_CASE("checkpoint: a save killed at any moment leaves every earlier checkpoint intact") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  save(store, 1);
  const Sample large(2, 200000);
  for (int moment = 0; moment < 20; ++moment) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      try {
        for (;;) store.save(large.contents);
      } catch (...) {
        _exit(1);
      }
    }
    usleep(static_cast<useconds_t>(500 * moment));
    kill(child, SIGKILL);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    const LoadedCheckpoint loaded = load_checkpoint(run.path());
    CHECK(loaded.warnings.empty());
    CHECK((loaded.step == 1 || loaded.step == 2));
    CHECK(load_checkpoint(run.path() / "checkpoints/step-1").step == 1);
  }
}

TEST_CASE("checkpoint: a full disk loses no earlier checkpoint and says so") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  const Sample first(1, 5000);
  store.save(first.contents);
  const auto message = [&](int64_t step) {
    const Sample next(step, 5000);
    const FullDisk disk(30000);  // enough for the model, not for the optimizer
    return message_of([&] { store.save(next.contents); });
  };
  for (const int64_t step : {2, 1}) {  // a new step, and the replacement of one
    const std::string text = message(step);
    INFO(text);
    CHECK(contains(text, "checkpoint: step " + std::to_string(step) + " was not saved: "));
    CHECK(contains(text, "optimizer.safetensors: cannot write: File too large"));
    CHECK(contains(text, "; earlier checkpoints are intact"));
    CHECK(!contains(text, "\n"));
    CHECK(names_in(run.path() / "checkpoints") == std::set<std::string>{"step-1"});
    CHECK(load_checkpoint(run.path()).model.floats("layers.0.weight") == first.weights);
  }
  save(store, 2);  // once there is room again
  CHECK(load_checkpoint(run.path()).step == 2);
}

TEST_CASE("checkpoint: a read-only folder loses no earlier checkpoint and says so") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  save(store, 1);
  save(store, 2);
  store.set_best(2, {{"accuracy", 0.5}});
  std::string save_message;
  std::string best_message;
  std::vector<std::string> warnings;
  {
    const ReadOnlyFolder read_only(run.path() / "checkpoints");
    if (!read_only.effective()) {
      WARN("skipped: permissions cannot be enforced for this user");
      return;
    }
    save_message = message_of([&] { save(store, 3); });
    best_message = message_of([&] { store.set_best(1, {{"accuracy", 0.6}}); });
    warnings = store.prune(1);
  }
  CHECK(contains(save_message, "checkpoint: step 3 was not saved: "));
  CHECK(contains(save_message, "cannot create: Permission denied; earlier checkpoints are intact"));
  CHECK(contains(best_message, "checkpoint: step 1 was not marked as best: "));
  CHECK(contains(best_message, "cannot create: Permission denied; earlier checkpoints are intact"));
  REQUIRE(warnings.size() == 1);
  CHECK(contains(warnings[0], "step-1: cannot rename to .step-1.del-"));
  CHECK(store.best()->step == 2);
  CHECK(load_checkpoint(run.path()).step == 2);
  CHECK(load_checkpoint(run.path() / "checkpoints/step-1").step == 1);
}

TEST_CASE("checkpoint: a file in the place of the checkpoints folder is named") {
  const TemporaryFolder run;
  overwrite(run.path() / "checkpoints", "");
  CheckpointStore store(run.path());
  CHECK(message_of([&] { save(store, 1); }) ==
        "checkpoint: step 1 was not saved: " + run.path().string() +
            "/checkpoints: is in the way: a folder is needed there; earlier checkpoints are "
            "intact");
}

TEST_CASE(
    "checkpoint: contents that could not be resumed from are refused before anything changes") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  save(store, 1);
  Sample sample(2);
  sample.contents.state["loss"] = std::numeric_limits<double>::quiet_NaN();
  CHECK(message_of([&] { store.save(sample.contents); }) ==
        "checkpoint: step 2 was not saved: state.json: holds a number that is not finite; earlier "
        "checkpoints are intact");
  sample.contents.state = {{"name", "\xFF"}};
  CHECK(contains(message_of([&] { store.save(sample.contents); }),
                 "checkpoint: step 2 was not saved: state.json: "));
  sample.contents.state = json::object();
  sample.contents.model.push_back(sample.contents.model[0]);
  CHECK(contains(message_of([&] { store.save(sample.contents); }),
                 "model.safetensors: tensor 'layers.0.weight': the name occurs twice"));
  sample.contents.step = -1;
  CHECK(contains(message_of([&] { store.save(sample.contents); }), "the step is negative"));
  CHECK(names_in(run.path() / "checkpoints") == std::set<std::string>{"step-1"});
}

TEST_CASE("checkpoint: pruning keeps the last ones and the best") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  for (int64_t step = 1; step <= 12; ++step) save(store, step);
  store.set_best(3, {{"accuracy", 0.97}});
  CHECK(store.prune(2).empty());
  CHECK(store.steps() == std::vector<int64_t>{3, 11, 12});
  CHECK(store.prune(5).empty());
  CHECK(store.steps() == std::vector<int64_t>{3, 11, 12});
  CHECK(names_in(run.path() / "checkpoints") ==
        std::set<std::string>{"best.json", "step-3", "step-11", "step-12"});
  CHECK_THROWS_AS(store.prune(0), Error);
}

TEST_CASE("checkpoint: pruning removes nothing while it cannot tell which one is the best") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  save(store, 1);
  save(store, 2);
  overwrite(run.path() / "checkpoints/best.json", "{\"step\":");
  const std::vector<std::string> warnings = store.prune(1);
  REQUIRE(warnings.size() == 1);
  CHECK(contains(warnings[0], "best.json: "));
  CHECK(contains(warnings[0], "; no old checkpoint was removed"));
  CHECK(store.steps() == std::vector<int64_t>{1, 2});
  CHECK(load_checkpoint(run.path()).step == 2);
}

TEST_CASE("checkpoint: the best is loaded on request and must be intact") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  save(store, 1);
  save(store, 2);
  CHECK(contains(message_of([&] { store.set_best(3, 1.0); }), "step 3 cannot be the best"));
  store.set_best(2, {{"accuracy", 0.5}});
  store.set_best(1, {{"accuracy", 0.75}});
  CHECK(store.best()->metric == json{{"accuracy", 0.75}});
  CHECK(load_checkpoint(run.path(), {.best = true}).step == 1);
  fs::resize_file(run.path() / "checkpoints/step-1/model.safetensors", 10);
  CHECK(contains(message_of([&] { load_checkpoint(run.path(), {.best = true}); }),
                 "step-1/model.safetensors: 10 bytes, expected "));
}

TEST_CASE("checkpoint: evaluation needs no optimizer file") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  save(store, 1);
  fs::remove(run.path() / "checkpoints/step-1/optimizer.safetensors");
  CHECK(!load_checkpoint(run.path(), {.optimizer = false}).optimizer);
  CHECK_THROWS_AS(load_checkpoint(run.path()), Error);

  Sample plain(2);
  plain.contents.optimizer.clear();
  store.save(plain.contents);
  CHECK(!load_checkpoint(run.path()).optimizer);
  CHECK(!fs::exists(run.path() / "checkpoints/step-2/optimizer.safetensors"));
}

TEST_CASE("checkpoint: a model without parameters is saved and loaded") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  CheckpointContents contents;
  store.save(contents);
  const LoadedCheckpoint loaded = load_checkpoint(run.path());
  CHECK(loaded.step == 0);
  CHECK(loaded.model.tensors().empty());
  CHECK(loaded.state == json::object());
  CHECK(loaded.config_yaml.empty());
}

TEST_CASE("checkpoint: another format of state.json is refused by number") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  save(store, 1);
  const fs::path state = run.path() / "checkpoints/step-1/state.json";
  std::string text = read_text_file(state);
  text.replace(text.find("\"format\": 1"), 11, "\"format\": 2");
  const size_t start = text.find(',') + 1;
  const std::string sum =
      fmt::format("{:08x}", crc32(bytes_of(std::string_view(text).substr(start))));
  text.replace(text.find(": \"") + 3, 8, sum);
  overwrite(state, text);
  CHECK(contains(message_of([&] { load_checkpoint(run.path() / "checkpoints/step-1"); }),
                 "state.json: format 2, this program reads format 1"));
}

TEST_CASE("checkpoint: file and folder names are portable") {
  const TemporaryFolder run;
  CheckpointStore store(run.path());
  save(store, 123456789);
  store.set_best(123456789, 1);
  for (const auto& entry : fs::recursive_directory_iterator(run.path())) {
    const std::string name = entry.path().filename().string();
    CHECK(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-._") == std::string::npos);
  }
}

TEST_CASE("files: CRC-32 agrees with the published check value and can be taken in pieces") {
  CHECK(crc32({}) == 0);
  CHECK(crc32(bytes_of("123456789")) == 0xCBF43926u);
  CHECK(crc32(bytes_of("The quick brown fox jumps over the lazy dog")) == 0x414FA339u);
  const std::string text = "The quick brown fox jumps over the lazy dog";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    CHECK(crc32(bytes_of(text.substr(cut)), crc32(bytes_of(text.substr(0, cut)))) == 0x414FA339u);
  }
}

TEST_CASE("files: an atomic write replaces the whole file or leaves it alone") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "result.json";
  const WrittenFile written = write_file_atomically(path, "123456789");
  CHECK(written.bytes == 9);
  CHECK(written.crc32 == 0xCBF43926u);
  write_file_atomically(path, "new");
  CHECK(read_text_file(path) == "new");
  {
    const FullDisk disk(10);
    CHECK(message_of([&] { write_file_atomically(path, std::string(11, 'x')); }) ==
          path.string() + ": cannot write: File too large");
  }
  CHECK(read_text_file(path) == "new");
  CHECK(names_in(folder.path()) == std::set<std::string>{"result.json"});
  CHECK(contains(message_of([&] { write_file_atomically(folder.path() / "no/file", "x"); }),
                 "cannot create: No such file or directory"));
  CHECK(contains(message_of([&] { write_file_atomically(folder.path(), "x"); }),
                 "cannot create: Is a directory"));
}

TEST_CASE("files: an atomic write follows links and writes straight to pipes") {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "real", "old");
  fs::create_symlink("real", folder.path() / "link");
  write_file_atomically(folder.path() / "link", "new");
  CHECK(fs::is_symlink(folder.path() / "link"));
  CHECK(read_text_file(folder.path() / "real") == "new");

  const fs::path pipe = folder.path() / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  REQUIRE(reader >= 0);
  write_file_atomically(pipe, "through");
  char buffer[16] = {};
  CHECK(read(reader, buffer, sizeof buffer) == 7);
  CHECK(std::string(buffer) == "through");
  close(reader);
  CHECK(fs::is_fifo(pipe));
  CHECK(message_of([&] { read_file(pipe); }) == pipe.string() + ": is not a regular file");
}

TEST_CASE("files: a folder transaction shows nothing before it is committed") {
  const TemporaryFolder folder;
  const fs::path target = folder.path() / "out";
  {
    DirectoryTransaction abandoned(target);
    abandoned.write("a", "text");
    CHECK(!fs::exists(target));
  }
  CHECK(fs::is_empty(folder.path()));
  {
    DirectoryTransaction transaction(target);
    transaction.write("a", "text");
    transaction.commit();
    CHECK(read_text_file(target / "a") == "text");
  }
  {
    DirectoryTransaction transaction(target);
    transaction.write("b", "text");
    transaction.commit();
  }
  CHECK(names_in(folder.path()) == std::set<std::string>{"out"});
  CHECK(names_in(target) == std::set<std::string>{"b"});
}

TEST_CASE("log: lines are in the file at once and go on after it is opened again") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "metrics.jsonl";
  {
    AppendLog log(path);
    CHECK(log.size() == 0);
    log.append("{\"step\":1}");
    CHECK(read_text_file(path) == "{\"step\":1}\n");
  }
  AppendLog log(path);
  CHECK(log.size() == 11);
  log.append("{\"step\":2}");
  log.sync();
  CHECK(read_text_file(path) == "{\"step\":1}\n{\"step\":2}\n");
  CHECK_THROWS_AS(log.append("two\nlines"), Error);
}

TEST_CASE("log: a resumed run drops the lines after its checkpoint, so none occurs twice") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "metrics.jsonl";
  uint64_t at_checkpoint = 0;
  {
    AppendLog log(path);
    log.append("1");
    at_checkpoint = log.size();
    log.append("2");
  }
  std::ofstream(path, std::ios::app) << "3 was cut o";
  AppendLog log(path);
  CHECK(message_of([&] { log.truncate_to(3); }) ==
        path.string() + ": no line ends at byte 3: the file was changed");
  CHECK(message_of([&] { log.truncate_to(100); }) ==
        path.string() + ": 15 bytes, expected at least 100: lines were lost");
  log.truncate_to(at_checkpoint);
  log.append("2");
  log.append("3");
  CHECK(read_text_file(path) == "1\n2\n3\n");
  log.truncate_to(0);
  CHECK(log.size() == 0);
  CHECK(read_text_file(path).empty());
}

TEST_CASE("log: a full disk leaves no half line") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "metrics.jsonl";
  AppendLog log(path);
  log.append("first");
  {
    const FullDisk disk(10);
    CHECK(message_of([&] { log.append("a longer line"); }) ==
          path.string() + ": cannot append: File too large");
  }
  CHECK(read_text_file(path) == "first\n");
  log.append("second");
  CHECK(read_text_file(path) == "first\nsecond\n");
}
