"""The screen: draws a `eagle3_console.state.ConsoleState` and turns keys into calls of a `Controller`."""
