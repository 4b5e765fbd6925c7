/** Watch HANDLER [COUNT]: Prints a line for each result of a handler. HANDLER/ selects all handlers below it. */
final class Watch {
    public static void main(String[] arguments) {
        boolean counted = arguments.length == 2 && arguments[1].matches("[1-9][0-9]{0,8}");
        if (arguments.length != 1 && !counted) {
            Program.usage("Watch HANDLER [COUNT]");
        }
        String pattern = arguments[0];
        Program.main(bus -> {
            bus.subscribe(pattern);
            boolean listening = false;
            long left = counted ? Long.parseLong(arguments[1]) : Long.MAX_VALUE;
            while (left > 0) {
                Message message = bus.receive();
                if (message.isTerminal()) {
                    Program.print(message);
                    bus.acknowledge(message);
                    left--;
                } else if (message.verb.equals("ANSWER") && !listening) {
                    System.err.println("earshot: listening to " + pattern);
                    listening = true;
                }
            }
        });
    }
}
