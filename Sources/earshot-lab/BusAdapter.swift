internal import EarshotClient
internal import EarshotLoop
internal import Glibc

/// Asynchronous program under test. It executes one command per line, and answers each `receive` with a line about an
/// event of `Bus` or its handlers.
///
/// The library chooses request IDs; the IDs of the lines identify tasks. The library reports removals and replacements
/// by the program itself, which scenarios do not expect.
actor BusAdapter {
    /// Operation started by a line.
    private enum PendingOperation {
        case task(Task<Void, Never>)
        case download(Download)

        func cancel() {
            switch self {
            case .task(let task): task.cancel()
            case .download(let download): download.cancel()
            }
        }
    }

    private let bus: Bus
    private let bodyFolder: String
    private let output: Output
    private var handlers: [String: Handler] = [:]
    /// Operations by handler and request.
    private var pendingOperations: [String: [String: PendingOperation]] = [:]
    private var resultLines: [String] = []
    /// Number of unanswered `receive` commands.
    private var unansweredReceives = 0
    private var bodyCount = 0

    init(_ bus: Bus, bodies: String, _ output: Output) {
        self.bus = bus
        self.bodyFolder = bodies
        self.output = output
    }

    func executeCommand(_ line: String) {
        let words = line.split(separator: " ").map(String.init)
        do {
            switch words.first {
            case "receive": unansweredReceives += 1
            case "fetch" where words.count >= 4: try fetch(words[1], words[2], words[3], Array(words.dropFirst(4)))
            case "cancel" where words.count == 3: pendingOperations[words[1]]?[words[2]]?.cancel()
            case "remove" where words.count == 2: remove(words[1])
            case "subscribe" where words.count == 2: subscribe(words[1])
            default: resultLines.append("error bad-message: no such command")
            }
        } catch {
            resultLines.append(Self.errorLine(of: error))
        }
        answerReceives()
    }

    // MARK: Commands

    private func fetch(_ name: String, _ request: String, _ url: String, _ fields: [String]) throws {
        let (options, replaces) = try Self.parseOptions(fields)
        let handler = try handlers[name] ?? bus.handler(named: name)
        handlers[name] = handler
        if replaces { pendingOperations[name] = nil }
        guard options.progressInterval == nil else {
            let download = try handler.download(url, options, replaces: replaces)
            pendingOperations[name, default: [:]][request] = .download(download)
            Task { await awaitResult(download, name, request) }
            return
        }
        // An immediate task sends its request before it first suspends, so requests are sent in the order of the lines.
        let task = Task.immediate {
            do {
                let response =
                    try await replaces ? handler.replace(with: url, options) : handler.fetch(url, options)
                await requestEnded(name, request, .success(response))
            } catch {
                await requestEnded(name, request, .failure(error))
            }
        }
        pendingOperations[name, default: [:]][request] = .task(task)
    }

    private func awaitResult(_ download: Download, _ name: String, _ request: String) async {
        for await progress in download.progress {
            let total = progress.total.map { String($0) } ?? "-"
            resultLines.append("progress \(name) \(request) \(progress.received)/\(total)")
            answerReceives()
        }
        do {
            await requestEnded(name, request, .success(try await download.response()))
        } catch {
            await requestEnded(name, request, .failure(error))
        }
    }

    private func remove(_ pattern: String) {
        for name in pendingOperations.keys where name == pattern || pattern.hasSuffix("/") && name.hasPrefix(pattern) {
            pendingOperations[name] = nil
        }
        Task.immediate {
            do {
                let count = try await bus.remove(pattern)
                resultLines.append("removed \(pattern) \(count)")
            } catch {
                resultLines.append(Self.errorLine(of: error))
            }
            answerReceives()
        }
    }

    private func subscribe(_ pattern: String) {
        Task.immediate {
            do {
                let watch = try await bus.watch(pattern)
                resultLines.append("listening")
                answerReceives()
                for try await ended in watch { try await reportResult(ended.handler, ended.request, ended.result) }
            } catch {
                resultLines.append(Self.errorLine(of: error))
                answerReceives()
            }
        }
    }

    // MARK: Events

    /// Handles the end of a request of this program.
    private func requestEnded(_ name: String, _ request: String, _ result: Result<Response, any Error>) async {
        do {
            try await reportResult(name, request, .success(result.get()))
        } catch is CancellationError {
            resultLines.append("cancelled \(name) \(request)")
        } catch let error as BusError
            where [.removed, .replaced].contains(error.code) && pendingOperations[name]?[request] == nil
        {
            // Removed by this program, so the scenario expects no line.
        } catch let error as BusError where [.idInUse, .invalidRequest, .noBroker].contains(error.code) {
            resultLines.append(Self.errorLine(of: error))
        } catch let error as BusError {
            do { try await reportResult(name, request, .failure(error)) } catch {
                resultLines.append(Self.errorLine(of: error))
            }
        } catch {
            resultLines.append(Self.errorLine(of: error))
        }
        answerReceives()
    }

    private func reportResult(_ name: String, _ request: String, _ result: Result<Response, BusError>) async throws {
        bodyCount += 1
        let path = "\(bodyFolder)/\(bodyCount)"
        switch result {
        case .success(let response):
            try await saveBody(response.body, path)
            resultLines.append("result \(name) \(request) \(response.status) \(path)")
        case .failure(let error):
            try await saveBody(error.page?.body, path)
            resultLines.append(
                "failed \(name) \(request) \(error.code) \(error.status.map { String($0) } ?? "-") \(path)")
        }
        answerReceives()
    }

    /// Writes a body to a new file.
    private func saveBody(_ body: ResponseBody?, _ path: String) async throws {
        let target = unsafe open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard target >= 0 else { throw SystemError("open", number: errno) }
        defer { close(target) }
        guard let body else { return }
        for try await piece in body.pieces {
            guard Output(target).write(piece) == .allWritten else { throw SystemError("write", number: errno) }
        }
    }

    private func answerReceives() {
        while unansweredReceives > 0, !resultLines.isEmpty {
            unansweredReceives -= 1
            _ = output.write(Array("\(resultLines.removeFirst())\n".utf8))
        }
    }

    private static func errorLine(of error: any Error) -> String {
        guard let error = error as? BusError else { return "error \(error)" }
        return "error \(error.code): \(error)"
    }

    /// Parses the options of a line, `NAME=VALUE` each, and whether the request replaces others.
    private static func parseOptions(_ fields: [String]) throws -> (FetchOptions, replaces: Bool) {
        var options = FetchOptions()
        var replaces = false
        for field in fields {
            let words = field.split(separator: "=", maxSplits: 1).map(String.init)
            switch (words[0], words.last ?? "") {
            case ("method", let value): options.method = value
            case ("replace", let value): replaces = value == "yes"
            case ("retries", let value): options.retries = Int(value) ?? -1
            case ("max-bytes", let value): options.maximumBytes = Int(value) ?? -1
            case ("progress", let value): options.progressInterval = .milliseconds(Int(value) ?? 0)
            default: throw AdapterFault(description: "no such field: \(words[0])")
            }
        }
        return (options, replaces)
    }
}

/// Line that this adapter does not support.
struct AdapterFault: Error, CustomStringConvertible {
    let description: String
}
