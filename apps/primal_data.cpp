// primal-data: looks into data sets, makes small ones, exports weights.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/error.h"
#include "core/saved_model.h"
#include "data/inspect.h"
#include "data/uea_generate.h"

namespace {

using namespace primal;

// Each add_... declares one subcommand; its callback does the work.

void add_inspect(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "inspect", "Cases, channels, lengths, missing cells, classes and checksum of .ts files");
  auto path = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  command->add_option("path", *path, "a .ts file or a data-set folder")->required();
  command->add_flag("--json", *json, "print JSON");
  command->callback([=, &exit_code] {
    const nlohmann::json facts = inspect_ts(*path);
    std::cout << (*json ? facts.dump(2) + "\n" : render_inspection(facts)) << std::flush;
    for (const nlohmann::json& file : facts.at("files")) {
      if (file.contains("error")) exit_code = 1;
    }
  });
}

void add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "Make a small learnable data set");
  command->require_subcommand(1);
  CLI::App* uea = command->add_subcommand("uea", "multivariate series of unequal length, as .ts");
  auto output = std::make_shared<std::string>();
  auto options = std::make_shared<GenerateOptions>();
  uea->add_option("--output", *output, "folder; the files go to DIR/NAME")->required();
  uea->add_option("--seed", options->seed, "the same seed gives the same bytes")
      ->capture_default_str();
  uea->add_option("--name", options->name, "name of the data set")->capture_default_str();
  uea->add_option("--train", options->train, "training cases")->capture_default_str();
  uea->add_option("--test", options->test, "test cases")->capture_default_str();
  uea->add_flag("--overwrite", options->overwrite, "replace existing files");
  uea->callback([=] {
    const GeneratedFiles files = generate_uea(*options, *output);
    for (const std::filesystem::path& path : {files.train, files.test}) {
      std::cout << (files.written ? "wrote " : "unchanged: ") << path.string() << std::endl;
    }
  });
}

void add_export(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("export", "Write the weights of a checkpoint for other programs");
  auto checkpoint = std::make_shared<std::string>();
  auto output = std::make_shared<std::string>();
  command->add_option("--checkpoint", *checkpoint, "step-N folder, or a run folder: its best")
      ->required();
  command
      ->add_option("--pytorch-names", *output,
                   "safetensors file to write, with the published PyTorch names and shapes")
      ->required();
  command->callback([=] {
    const auto model = load_model(*checkpoint, {}, 1, {"none"});
    export_pytorch(*model, *output);
    std::cout << "wrote " << *output << " from " << model->directory.string() << std::endl;
  });
}

// "; did you mean '--seed'?" for the first argument that the innermost given command does not know.
std::string suggestion(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  std::vector<std::string> known;
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  for (const CLI::App* inner : command->get_subcommands({})) known.push_back(inner->get_name());
  const std::vector<std::string_view> candidates(known.begin(), known.end());
  for (const std::string& word : app.remaining(true)) {
    const std::string near = nearest(word.substr(0, word.find('=')), candidates);
    if (!near.empty()) return "; did you mean '" + near + "'?";
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Looks into data sets, makes small ones, exports weights", "primal-data"};
  app.require_subcommand(1);
  int exit_code = 0;
  add_inspect(app, exit_code);
  add_generate(app);
  add_export(app);
  try {
    app.parse(argc, argv);
    return exit_code;
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::cerr << "primal-data: " << error.what() << suggestion(app) << std::endl;
    return 2;
  } catch (const UsageError& error) {
    std::cerr << "primal-data: " << error.what() << std::endl;
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "primal-data: " << error.what() << std::endl;
    return 1;
  }
}
