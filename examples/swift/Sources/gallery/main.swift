// gallery HANDLER URL...: Requests all URLs, and removes the handler after half of the results.
import Command
import EarshotClient

let arguments = Command.arguments(2...Int.max, "gallery HANDLER URL...")

await Command.run { bus in
    let page = try bus.handler(named: arguments[0])
    let downloads = try arguments.dropFirst().map { try page.download($0) }
    var (heard, dropped) = (0, 0)
    try await withThrowingTaskGroup(of: String?.self) { group in
        for (number, download) in downloads.enumerated() {
            group.addTask {
                do {
                    let response = try await download.response()
                    return "\(page.name) \(number + 1) \(response.status) \(response.url)"
                } catch let error as BusError where error.code == .removed {
                    return nil
                } catch let error as BusError where error.code != .noBroker {
                    return "\(page.name) \(number + 1) \(error.code) \(error)"
                }
            }
        }
        for try await line in group {
            guard let line else {
                dropped += 1
                continue
            }
            try Command.write(line: line)
            heard += 1
            if heard == (downloads.count + 1) / 2 { page.remove() }
        }
    }
    try Command.write(line: "dropped \(dropped)")
}
