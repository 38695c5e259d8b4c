#pragma once

#include <CLI/CLI.hpp>
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

/// Parses, runs `body` and turns what it throws into one line and an exit code: 0 done, 1 error, 2
/// wrong usage. With `config_keys`, a configuration key that was typed as an option is recognised.
inline int run_program(CLI::App& app, int argc, char** argv, bool config_keys,
                       const std::function<int()>& body) {
  const auto complain = [&](std::string_view text) {
    std::cout.flush();
    std::cerr << app.get_name() << ": " << text << std::endl;
  };
  try {
    app.allow_extras();
    for (CLI::App* sub : app.get_subcommands({})) sub->allow_extras();
    try {
      app.parse(argc, argv);
    } catch (const CLI::CallForHelp& help) {
      return app.exit(help);
    } catch (const CLI::ParseError& error) {
      throw UsageError(std::string(error.what()) + " (--help lists the options)");
    }
    const CLI::App* active = &app;
    for (const CLI::App* sub : app.get_subcommands()) active = sub;
    if (const auto extras = app.remaining(true); !extras.empty()) {
      // An option's value is left over with it: the option is what was wrong.
      std::string wrong = extras.front();
      for (const std::string& extra : extras) {
        if (extra.starts_with("-")) {
          wrong = extra;
          break;
        }
      }
      throw UsageError("unknown " + std::string(wrong.starts_with("-") ? "option" : "argument") +
                       " '" + wrong + "'" +
                       (wrong.starts_with("-") ? suggestion(*active, wrong, config_keys) : "") +
                       " (--help lists the options)");
    }
    return body();
  } catch (const UsageError& error) {
    complain(error.what());
    return 2;
  } catch (const std::bad_alloc&) {
    complain("out of memory; a smaller train.batch or train.evaluate_batch needs less");
  } catch (const std::exception& error) {
    complain(error.what());
  }
  return 1;
}

/// `--set key=value`, any number of times.
inline void add_set_option(CLI::App& app, std::vector<std::string>& overrides) {
  app.add_option("--set", overrides, "Override one key of the configuration: KEY=VALUE; repeatable")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
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
