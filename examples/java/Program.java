import java.io.IOException;
import java.nio.charset.StandardCharsets;

/** What the programs share: a connection for as long as they run, and how they fail. */
interface Program<B extends Connection> {
    void run(B bus) throws Bus.Failure, IOException;

    /** Makes a connection. */
    interface Opening<B> {
        B open() throws Bus.Failure;
    }

    /** Runs it with a bus; a failure is told on standard error and by the exit status. */
    static void main(Program<Bus> program) {
        main(Bus::new, program);
    }

    /** Runs it with this connection. */
    static <B extends Connection> void main(Opening<B> opening, Program<B> program) {
        try (B bus = opening.open()) {
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
        // Not exit: a shutdown hook may wait for this thread.
        Runtime.getRuntime().halt(status);
    }
}
