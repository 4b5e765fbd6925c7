internal import EarshotBroker
internal import EarshotClient
internal import EarshotGateway
internal import EarshotLoop
internal import EarshotWorker
internal import Logging

/// Run of a child of the supervisor, with its options.
enum ChildRun {
    /// Options, and the file of the cluster.
    case broker(BrokerOptions, cluster: String?)
    case worker(WorkerOptions)
    case gateway(GatewayOptions, GatewayKeySource)
    /// Options, and the file of the cluster.
    case puller(PullerOptions, cluster: String)
    /// Arguments of the program `earshot-web`, which is never a fork.
    case door([String])

    /// Runs until a signal ends it.
    ///
    /// - Throws: `CommandError` if a directory is in use or unfit; otherwise the error of the failed call.
    func run(_ logLevel: Logger.Level, _ logFormat: LogFormat) throws -> ExitStatus {
        do {
            switch self {
            case .broker(let options, _):
                let logger = LineLog.logger("broker", logLevel, logFormat)
                return try BrokerProcess(options: options, logger: logger).run() == 0 ? .success : .generalError
            case .worker(let options):
                try WorkerProcess.run(options, logger: LineLog.logger("worker", logLevel, logFormat))
                return .success
            case .gateway(let options, let source):
                let logger = LineLog.logger(source.label, logLevel, logFormat)
                return try GatewayProcess(options: options, logger: logger).run() == 0 ? .success : .generalError
            case .puller(let options, _):
                try WorkerProcess.run(options, logger: LineLog.logger("puller", logLevel, logFormat))
                return .success
            case .door: throw CommandError(.generalError, "the HTTP door is a program of its own")
            }
        } catch let error as BrokerError {
            throw CommandError(error.isPermanent ? .configurationError : .cannotServe, error.description)
        } catch let error as WorkerUnfit {
            throw CommandError(
                error.isConfigurationError ? .configurationError : .cannotServe, "cannot start a worker: \(error)")
        } catch let error as WorkerRefused {
            throw CommandError(.cannotServe, error.description)
        } catch let error as GatewayError {
            throw CommandError(.cannotServe, error.description)
        } catch let error as SystemError where error.isPersistent {
            throw CommandError(.cannotServe, "cannot serve: \(error.description)")
        }
    }

    /// Path of the program.
    var program: String {
        if case .door = self {
            ChildProcess.siblingProgramPath(named: "earshot-web")
        } else {
            ChildProcess.executablePath
        }
    }

    /// Whether the process proves to the broker, or checks, that it belongs to the supervisor. The gateway is exposed
    /// to the network, so it must not be able to act as a worker.
    var needsSecret: Bool {
        switch self {
        case .broker, .worker, .puller: true
        case .gateway, .door: false
        }
    }

    /// Returns the arguments that start the same run in another process, beginning with the name of the program. A
    /// broker receives its settings by its channel instead.
    ///
    /// - Parameter secret: descriptor from which the process reads the secret; nil for none.
    func arguments(
        in folder: RuntimeFolder, secret: Int32?, _ logLevel: Logger.Level, _ logFormat: LogFormat
    ) -> [String] {
        let commonArguments =
            ["--runtime", folder.path, "--log-level", logLevel.rawValue, "--log-format", logFormat.rawValue]
            + Self.numberOptions(("--secret-fd", secret))
        switch self {
        case .broker(let options, let cluster):
            return ["earshot", "broker"] + commonArguments + ["--spool", options.spoolFolder]
                + (options.cacheFolder.map { ["--cache-folder", $0] } ?? ["--no-cache"])
                + (options.partsFolder.map { ["--parts-folder", $0] } ?? [])
                + (options.durableFolder.map { ["--durable-folder", $0] } ?? ["--no-durable"])
                + (cluster.map { ["--cluster", $0] } ?? [])
                + options.workerPids.map { "--worker-pid=\($0)" } + options.gatewayPids.map { "--gateway-pid=\($0)" }
                + Self.numberOptions(
                    ("--parent-pid", options.parentPid), ("--supervisor-fd", options.supervisorDescriptor),
                    ("--ready-fd", options.readyDescriptor), ("--bus-fd", options.busDescriptor))
                + (options.hasPredecessor ? ["--follows-broker"] : [])
        case .worker(let options):
            return ["earshot", "worker"] + commonArguments + ["--user-agent=\(options.userAgent)"]
                + (options.dnsServers ?? []).map { "--dns-server=\($0)" }
                + (options.caFile.map { ["--ca-file=\($0)"] } ?? [])
                + (options.tlsKeyLog.map { ["--tls-key-log=\($0)"] } ?? [])
                + Self.numberOptions(("--parent-pid", options.parentPid), ("--slots", Int32(options.slots)))
        case .gateway(let options, let source):
            return ["earshot", "gateway"] + commonArguments + source.arguments
                + ["--listen", options.addresses.map(\.description).joined(separator: ",")]
                + Self.numberOptions(
                    ("--parent-pid", options.parentPid), ("--supervisor-fd", options.supervisorDescriptor))
        case .puller(let options, let cluster):
            return ["earshot", "puller"] + commonArguments + ["--cluster", cluster]
                + Self.numberOptions(("--parent-pid", options.parentPid))
        case .door(let arguments): return ["earshot-web", "door"] + arguments
        }
    }

    private static func numberOptions(_ options: (name: String, value: Int32?)...) -> [String] {
        options.flatMap { option in option.value.map { [option.name, String($0)] } ?? [] }
    }
}
