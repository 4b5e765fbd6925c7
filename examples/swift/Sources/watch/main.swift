// watch HANDLER [COUNT]: Prints a line for each result of a handler. HANDLER/ selects all handlers below it.
import Command
import EarshotClient

let usage = "watch HANDLER [COUNT]"
let arguments = Command.arguments(1...2, usage)

await Command.run { bus in
    var left = Int.max
    if arguments.count == 2 {
        guard let count = Int(arguments[1]), count > 0 else { throw Command.Failure.usage(usage) }
        left = count
    }
    let watch = try await bus.watch(arguments[0])
    Command.say("listening to \(arguments[0])")
    for try await ended in watch {
        let name = "\(ended.handler) \(ended.request)"
        switch ended.result {
        case .success(let response): try Command.write(line: "\(name) \(response.status) \(response.url)")
        case .failure(let error): try Command.write(line: "\(name) \(error.code) \(error.page?.url ?? "")")
        }
        left -= 1
        if left == 0 { break }
    }
}
