#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/error.h"
#include "core/run_config.h"

namespace primal {

/// An option that takes the name of a file or folder, which is not empty.
inline CLI::Option* add_path_option(CLI::App& app, const std::string& option, std::string& path,
                                    const std::string& type, const std::string& help) {
  return app.add_option(option, path, help)->type_name(type)->check([](const std::string& text) {
    return text.empty() ? "the name is empty" : "";
  });
}

/// The innermost command that was given.
inline const CLI::App& given_command(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? app : given_command(*commands.front());
}

/// What a mistyped option was meant to be, as the end of a sentence, or nothing.
inline std::string suggestion(const CLI::App& app, std::string_view typed, bool config_keys) {
  const size_t equals = typed.find('=');
  std::string word(typed.substr(0, equals));
  word.erase(0, word.find_first_not_of('-'));
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back(name);
  }
  const std::vector<std::string_view> flag_names(flags.begin(), flags.end());
  const std::vector<std::string> keys =
      config_keys ? known_config_keys() : std::vector<std::string>();
  std::vector<std::string_view> leaves;
  for (const std::string& key : keys)
    leaves.push_back(std::string_view(key).substr(key.rfind('.') + 1));
  std::string key_word = word;
  for (char& c : key_word) c = c == '-' ? '_' : c;
  const auto set = [&](size_t i) { return "; did you mean --set " + keys[i] + "=VALUE?"; };
  for (size_t i = 0; i < keys.size(); ++i) {
    if (key_word == leaves[i] || key_word == keys[i]) return set(i);
  }
  if (const std::string near = nearest(word, flag_names); !near.empty()) {
    return "; did you mean --" + near + "?";
  }
  if (const std::string near = nearest(key_word, leaves); !near.empty()) {
    for (size_t i = 0; i < keys.size(); ++i) {
      if (near == leaves[i]) return set(i);
    }
  }
  return "";
}

/// Refuses words of the command line that no option or command took.
inline void refuse_extras(const CLI::App& app, bool config_keys) {
  const std::vector<std::string> extras = app.remaining(true);
  if (extras.empty()) return;
  const CLI::App& command = given_command(app);
  const std::string& first = extras.front();
  if (const auto commands = command.get_subcommands({});
      !commands.empty() && !first.starts_with("-")) {
    std::vector<std::string> names;
    for (const CLI::App* inner : commands) names.push_back(inner->get_name());
    const std::string near =
        nearest(first, std::vector<std::string_view>(names.begin(), names.end()));
    throw UsageError("unknown command '" + first + "'" +
                     (near.empty() ? "" : "; did you mean '" + near + "'?") +
                     " (--help lists the commands)");
  }
  // An option's value is left over with it: the option is what was wrong.
  const auto option =
      std::ranges::find_if(extras, [](const std::string& word) { return word.starts_with("-"); });
  if (option == extras.end()) {
    const bool is_config = command.get_option_no_throw("--config") != nullptr &&
                           (first.ends_with(".yaml") || first.ends_with(".yml"));
    throw UsageError("unknown argument '" + first + "'" +
                     (is_config ? "; did you mean --config " + first + "?" : "") +
                     (first.find('=') != first.npos ? "; did you mean --set " + first + "?" : "") +
                     " (--help lists the options)");
  }
  throw UsageError("unknown option '" + *option + "'" + suggestion(command, *option, config_keys) +
                   " (--help lists the options)");
}

inline void parse_command_line(CLI::App& app, int argc, char** argv, bool config_keys) {
  const std::vector<std::string> arguments(argv, argv + argc);
  for (const std::string& argument : arguments) {
    // Arguments are written into JSON records.
    if (!is_utf8(argument)) throw UsageError("an argument is not UTF-8 text");
  }
  const std::function<void(CLI::App&)> keep_extras = [&](CLI::App& command) {
    command.allow_extras();
    for (CLI::App* inner : command.get_subcommands({})) keep_extras(*inner);
  };
  keep_extras(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success&) {  // --help, --version
    throw;
  } catch (const CLI::ParseError& error) {
    refuse_extras(app, config_keys);  // a mistyped option explains why another is missing
    throw UsageError(std::string(error.what()) + " (--help lists the options)");
  }
  refuse_extras(app, config_keys);
}

/// Parses, runs `body` and turns what it throws into one line and an exit code: 0 done, 1 error, 2
/// wrong usage. With `config_keys`, a configuration key that was typed as an option is recognised.
inline int run_program(CLI::App& app, int argc, char** argv, bool config_keys,
                       const std::function<int()>& body) {
  const auto complain = [&](std::string_view text) {
    std::cout.flush();
    std::cerr << app.get_name() << ": " << text << std::endl;
  };
  app.set_version_flag("--version", "primal " + version(), "Print version and commit, and end");
  try {
    int code = 0;
    try {
      parse_command_line(app, argc, argv, config_keys);
      code = body();
    } catch (const CLI::Success& answer) {
      app.exit(answer);
    }
    std::cout.flush();
    if ((std::fflush(stdout) != 0 || !std::cout || std::ferror(stdout) != 0) && code == 0) {
      complain("standard output: not all could be written");
      return 1;
    }
    return code;
  } catch (const UsageError& error) {
    complain(error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    complain(
        "out of memory; a smaller train.batch or train.evaluate_batch or a larger train.accumulate "
        "needs less");
  } catch (const std::exception& error) {
    complain(error.what());
  }
  return 1;
}

/// `--set key=value`, any number of times.
inline void add_set_option(CLI::App& app, std::vector<std::string>& overrides) {
  app.add_option("--set", overrides, "Override one key of the configuration: KEY=VALUE; repeatable")
      ->allow_extra_args(false)
      ->option_text("KEY=VALUE");
}

/// Refuses overrides of other keys than these (a key ending in '.' stands for all below it).
inline void check_override_keys(const std::vector<std::string>& overrides,
                                const std::vector<std::string_view>& allowed,
                                std::string_view when) {
  for (const std::string& text : overrides) {
    const std::string_view key = std::string_view(text).substr(0, text.find('='));
    bool fits = false;
    for (const std::string_view a : allowed)
      fits = fits || (a.ends_with('.') ? key.starts_with(a) : key == a);
    if (!fits) {
      std::string list;
      for (const std::string_view a : allowed) {
        list += (list.empty() ? "" : ", ") + std::string(a) + (a.ends_with('.') ? "*" : "");
      }
      throw UsageError("--set " + text + ": " + std::string(when) + " only " + list +
                       " can change");
    }
  }
}

}  // namespace primal
