// fetch URL: Writes the body of a URL to standard output while it arrives.
import Command
import EarshotClient

let url = Command.arguments(1...1, "fetch URL")[0]

await Command.run { bus in
    let handler = bus.handler()
    let download = try handler.download(url)
    for try await piece in download.pieces {
        switch piece {
        case .bytes(let bytes): try Command.write(bytes)
        case .restarted: throw Command.Failure.changed
        }
    }
}
