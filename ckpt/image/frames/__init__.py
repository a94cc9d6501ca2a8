"""The call stack: capture, description, rebuild; everything that depends on the interpreter's frames and bytecode."""
