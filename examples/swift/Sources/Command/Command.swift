import EarshotClient
import Glibc

/// Common parts of the example programs: connection, output and exit codes.
public enum Command {
    /// Failure of a program that is not an error of the bus.
    public enum Failure: Error {
        case usage(String)
        /// Standard output cannot be written.
        case output
        /// The body changed on the server after a part of it was written.
        case changed
    }

    /// Connects to the bus, runs a program and exits.
    public static func run(_ body: (Bus) async throws -> Void) async -> Never {
        do {
            // Without SIGPIPE, a closed standard output is an error of `write`.
            signal(SIGPIPE, SIG_IGN)
            let bus = try await Bus.connect(application: "example", timeout: .seconds(5))
            try await body(bus)
            await bus.close()
            exit(0)
        } catch Failure.output {
            end(1, "the output takes nothing more")
        } catch Failure.changed {
            end(1, "the server has another version by now, after a part of the first was written")
        } catch Failure.usage(let text) {
            end(64, "usage: \(text)")
        } catch let error as BusError {
            let reason = [error.code.name, error.status.map(String.init)].compactMap(\.self).joined(separator: " ")
            end(error.code == .noBroker ? 69 : 1, "\(error) (\(reason))")
        } catch {
            end(1, "\(error)")
        }
    }

    /// Returns the arguments after the program's name. Prints the usage and exits if their number is not in `count`.
    public static func arguments(_ count: ClosedRange<Int>, _ usage: String) -> [String] {
        let arguments = Array(CommandLine.arguments.dropFirst())
        guard count.contains(arguments.count) else { end(64, "usage: \(usage)") }
        return arguments
    }

    /// Writes to standard output.
    public static func write(_ bytes: [UInt8]) throws {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(STDOUT_FILENO, $0.baseAddress, $0.count) }
            guard count > 0 else { throw Failure.output }
            rest = rest.dropFirst(count)
        }
    }

    /// Writes a line to standard output.
    public static func write(line: String) throws { try write(Array("\(line)\n".utf8)) }

    /// Writes a line to standard error.
    public static func say(_ text: String) {
        let line = Array("earshot: \(text)\n".utf8)
        _ = line.withUnsafeBytes { Glibc.write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }

    private static func end(_ status: Int32, _ text: String) -> Never {
        say(text)
        exit(status)
    }
}
