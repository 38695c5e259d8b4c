// primal-data: looks into data sets, makes small ones, exports weights.

#include <charconv>
#include <filesystem>
#include <memory>
#include <system_error>

#include "apps/command_line.h"
#include "core/files.h"
#include "core/saved_model.h"
#include "data/inspect.h"
#include "data/listops_generate.h"
#include "data/lra.h"
#include "data/pathfinder_generate.h"
#include "data/uea_generate.h"

namespace {

using namespace primal;

/// What the given command does; returns the exit code.
using Job = std::function<int()>;

void add_count_option(CLI::App& command, const std::string& name, int64_t& value,
                      const std::string& description) {
  command.add_option(name, value, description)
      ->check(CLI::Range(int64_t{1}, int64_t{1000000000}))
      ->capture_default_str();
}

void add_seed_option(CLI::App& command, uint64_t& value) {
  command.add_option("--seed", value, "the same seed gives the same bytes")
      ->check([](const std::string& text) {
        // CLI11 itself takes -1 for 2^64 - 1.
        uint64_t parsed = 0;
        const char* end = text.data() + text.size();
        const auto result = std::from_chars(text.data(), end, parsed);
        return result.ec == std::errc() && result.ptr == end
                   ? std::string()
                   : fmt::format("expected a whole number from 0 to 2^64 - 1, got {}", text);
      })
      ->capture_default_str();
}

// Each add_... declares one command, which sets `job` when it is given.

void add_inspect(CLI::App& app, Job& job) {
  CLI::App* command = app.add_subcommand(
      "inspect", "Sizes, lengths, classes and checksums of a data set, before anything is trained");
  auto path = std::make_shared<std::string>();
  auto task = std::make_shared<std::string>("uea");
  auto json = std::make_shared<bool>(false);
  add_path_option(
      *command, "path", *path, "PATH",
      "a .ts file or a data-set folder; data.root of one of the Long Range Arena's tasks")
      ->required();
  command->add_option("--task", *task, "what the folder holds")
      ->check(CLI::IsMember({"uea", "listops", "text", "retrieval", "image", "pathfinder"}))
      ->capture_default_str();
  command->add_flag("--json", *json, "print JSON");
  command->callback([=, &job] {
    job = [=] {
      if (*task != "uea") {
        LraDataConfig config;
        read_config(ConfigSource::from_string(fmt::format("{{name: {}, protocol: paper}}", *task),
                                              "--task"),
                    config);
        config.root = *path;
        const nlohmann::json facts = inspect_lra(config);
        std::cout << (*json ? facts.dump(2) + "\n" : render_lra_inspection(facts));
        return 0;
      }
      const nlohmann::json facts = inspect_ts(*path);
      std::cout << (*json ? facts.dump(2) + "\n" : render_inspection(facts));
      const auto& files = facts.at("files");
      return std::ranges::any_of(files, [](const auto& f) { return f.contains("error"); }) ? 1 : 0;
    };
  });
}

void add_generate_listops(CLI::App& command, Job& job) {
  CLI::App* listops = command.add_subcommand(
      "listops", "the Long Range Arena's ListOps by the rules of its release, as .tsv");
  auto output = std::make_shared<std::string>();
  auto options = std::make_shared<ListOpsOptions>();
  add_path_option(*listops, "--output", *output, "DIR", "folder; the files go to DIR/listops-1000")
      ->required();
  add_seed_option(*listops, options->seed);
  add_count_option(*listops, "--train", options->train, "training rows");
  add_count_option(*listops, "--validation", options->validation, "validation rows");
  add_count_option(*listops, "--test", options->test, "test rows");
  listops->add_flag("--overwrite", options->overwrite, "replace existing files");
  listops->callback([=, &job] {
    job = [=] {
      for (const std::filesystem::path& path : generate_listops(*options, *output)) {
        std::cout << "wrote " << path.string() << "\n";
      }
      return 0;
    };
  });
}

void add_generate_pathfinder(CLI::App& command, Job& job) {
  CLI::App* pathfinder = command.add_subcommand(
      "pathfinder", "pictures of the kind of the Long Range Arena's Pathfinder, as .png and lists");
  auto output = std::make_shared<std::string>();
  auto options = std::make_shared<PathfinderOptions>();
  add_path_option(*pathfinder, "--output", *output, "DIR",
                  "folder; the files go to DIR/pathfinder32/curv_contour_length_14")
      ->required();
  add_seed_option(*pathfinder, options->seed);
  add_count_option(*pathfinder, "--examples", options->examples, "pictures");
  pathfinder->add_option("--resolution", options->side, "pixels of a side")
      ->check(CLI::IsMember({32, 128}))
      ->capture_default_str();
  auto difficulty = std::make_shared<std::string>("hard");
  const std::map<std::string, int64_t> strokes{{"easy", 6}, {"intermediate", 9}, {"hard", 14}};
  pathfinder->add_option("--difficulty", *difficulty, "contours of 6, 9 or 14 strokes")
      ->check(CLI::IsMember({"easy", "intermediate", "hard"}))
      ->capture_default_str();
  pathfinder->add_flag("--overwrite", options->overwrite, "replace existing files");
  pathfinder->callback([=, &job] {
    options->contour_strokes = strokes.at(*difficulty);
    job = [=] {
      const std::filesystem::path place = generate_pathfinder(*options, *output);
      std::cout << "wrote " << place.string() << "\n";
      return 0;
    };
  });
}

void add_generate(CLI::App& app, Job& job) {
  CLI::App* command = app.add_subcommand("generate", "Make a data set");
  command->require_subcommand(1);
  CLI::App* uea = command->add_subcommand("uea", "multivariate series of unequal length, as .ts");
  auto output = std::make_shared<std::string>();
  auto options = std::make_shared<GenerateOptions>();
  add_path_option(*uea, "--output", *output, "DIR", "folder; the files go to DIR/NAME")->required();
  add_seed_option(*uea, options->seed);
  uea->add_option("--name", options->name, "name of the data set")->capture_default_str();
  add_count_option(*uea, "--train", options->train, "training cases");
  add_count_option(*uea, "--test", options->test, "test cases");
  uea->add_flag("--overwrite", options->overwrite, "replace existing files");
  add_generate_listops(*command, job);
  add_generate_pathfinder(*command, job);
  uea->callback([=, &job] {
    job = [=] {
      const GeneratedFiles files = generate_uea(*options, *output);
      for (const std::filesystem::path& path : {files.train, files.test}) {
        std::cout << (files.written ? "wrote " : "unchanged: ") << path.string() << "\n";
      }
      return 0;
    };
  });
}

void add_export(CLI::App& app, Job& job) {
  CLI::App* command =
      app.add_subcommand("export", "Write the weights of a checkpoint for other programs");
  auto checkpoint = std::make_shared<std::string>();
  auto output = std::make_shared<std::string>();
  add_path_option(*command, "--checkpoint", *checkpoint, "DIR",
                  "step-N folder, or a run folder: its best")
      ->required();
  add_path_option(*command, "--pytorch-names", *output, "FILE",
                  "safetensors file to write, with the published PyTorch names and shapes")
      ->required();
  command->callback([=, &job] {
    job = [=] {
      check_output_file(*output);
      const auto model = load_model(*checkpoint, {}, 1, {"none"});
      export_pytorch(*model, *output);
      std::cout << "wrote " << *output << " from " << model->directory.string() << "\n";
      return 0;
    };
  });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Looks into data sets, makes small ones, exports weights", "primal-data"};
  app.require_subcommand(1);
  Job job;
  add_inspect(app, job);
  add_generate(app, job);
  add_export(app, job);
  return run_program(app, argc, argv, false, [&] { return job(); });
}
