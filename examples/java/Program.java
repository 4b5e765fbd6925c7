import java.io.IOException;
import java.nio.charset.StandardCharsets;

/** What the programs share: a bus for as long as they run, and how they fail. */
interface Program {
    void run(Bus bus) throws Bus.Failure, IOException;

    /** Runs it; a failure is told on standard error and by the exit status. */
    static void main(Program program) {
        try (Bus bus = new Bus()) {
            program.run(bus);
        } catch (Bus.Failure failure) {
            end("earshot: " + failure.getMessage(), failure.status);
        } catch (IOException | RuntimeException failure) {
            end("earshot: " + failure, Bus.FAILED);
        }
    }

    /** Writes bytes to standard output, which itself tells no failure. */
    static void write(byte[] bytes) throws Bus.Failure {
        System.out.writeBytes(bytes);
        if (System.out.checkError()) {
            throw new Bus.Failure("cannot write", Bus.FAILED);
        }
    }

    /** Writes a line to standard output. */
    static void print(Object line) throws Bus.Failure {
        write((line + "\n").getBytes(StandardCharsets.UTF_8));
    }

    /** Ends a program that was called wrongly. */
    static void usage(String text) {
        end("usage: " + text, Bus.USAGE);
    }

    private static void end(String text, int status) {
        System.err.println(text);
        System.exit(status);
    }
}
