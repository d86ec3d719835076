// run_command_line: what main() of the trireme binary does.
#pragma once

namespace trireme {

/// Parses the command line, runs its subcommand and returns the exit status. Throws what the subcommand throws, or
/// OptionError.
int run_command_line(int argc, char** argv);

}  // namespace trireme
