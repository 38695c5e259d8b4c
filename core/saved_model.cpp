#include "core/saved_model.h"

#include "core/error.h"
#include "core/weights.h"

namespace primal {

std::unique_ptr<SavedModel> load_model(const std::filesystem::path& path,
                                       const std::vector<std::string>& overrides, int threads,
                                       const std::vector<std::string>& splits) {
  auto model = std::make_unique<SavedModel>();
  model->best = CheckpointStore(path).best().has_value();
  LoadedCheckpoint checkpoint = load_checkpoint(path, {.best = model->best, .optimizer = false});
  model->directory = checkpoint.directory;
  model->step = checkpoint.step;
  model->warnings = std::move(checkpoint.warnings);
  model->config = load_run_config(ConfigSource::from_string(
      checkpoint.config_yaml, (model->directory / "config.yaml").string(), overrides));
  if (!checkpoint.state.contains("task")) {
    fail(
        "checkpoint: {}: state.json keeps nothing of the data that the model was trained on "
        "(normalisation, classes)",
        model->directory.string());
  }
  model->backend = make_backend(model->config, threads);
  TaskSetup setup;
  setup.seed = static_cast<uint64_t>(model->config.seed);
  setup.state = &checkpoint.state.at("task");
  setup.splits = splits;
  model->task = model->config.task->make(model->backend, setup);
  load_weights(model->backend, model->task->parameters(), checkpoint.model, {});
  for (const auto& warning : model->task->warnings()) model->warnings.push_back(warning);
  return model;
}

void export_pytorch(const SavedModel& model, const std::filesystem::path& output) {
  const auto names = model.config.task->pytorch_names(*model.task);
  if (names.empty()) {
    fail("export: {}: the published PyTorch code has no such model", model.directory.string());
  }
  const ParameterSet& parameters = model.task->parameters();
  write_foreign(output, parameters, download(model.backend, parameters.values()), names,
                {{"format", "pt"}});
}

}  // namespace primal
