import java.io.IOException;
import java.nio.charset.StandardCharsets;

/** Program with a connection to a bus. Its static methods run programs, write output and report failures. */
interface Program<B extends Connection> {
    void run(B bus) throws Bus.Failure, IOException;

    /** Opens a connection. */
    interface Opening<B> {
        B open() throws Bus.Failure;
    }

    /** Runs a program with a bus. Reports a failure on standard error and as the exit code. */
    static void main(Program<Bus> program) {
        main(() -> new Bus(), program);
    }

    /** Runs a program with this connection. */
    static <B extends Connection> void main(Opening<B> opening, Program<B> program) {
        try (B bus = opening.open()) {
            program.run(bus);
        } catch (Bus.Failure failure) {
            end("earshot: " + failure.getMessage(), failure.status);
        } catch (IOException | RuntimeException failure) {
            end("earshot: " + failure, Bus.FAILED);
        }
    }

    /** Writes bytes to standard output. Fails if they cannot be written; System.out itself throws nothing. */
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

    /** Prints the usage of a program and exits. */
    static void usage(String text) {
        end("usage: " + text, Bus.USAGE);
    }

    private static void end(String text, int status) {
        System.err.println(text);
        // Unlike exit, halt runs no shutdown hook, which could wait for this thread.
        Runtime.getRuntime().halt(status);
    }
}
