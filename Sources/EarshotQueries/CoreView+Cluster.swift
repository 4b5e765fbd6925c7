internal import EarshotCore
internal import EarshotWire

/// The node and its cluster in the answers to QUERY.
extension CoreView {
    /// Whether requests wait because the engine is unreachable, and may soon start without it.
    var isWaitingForClusterEngine: Bool {
        records.clusterState.map { !$0.value.book.isMember && !$0.value.book.isUncoordinated } ?? false
    }

    /// Mode of a node: `member`; `waiting` for its engine; or `alone`, when it fetches without the engine.
    private var clusterMode: String {
        guard let book = records.clusterState?.value.book else { return "none" }
        return book.isMember ? "member" : book.isUncoordinated ? "alone" : "waiting"
    }

    /// Writes the member `cluster`. A broker on its own has the mode `none` only.
    func writeCluster(withMembers: Bool, to json: inout JSONText) {
        json.member("cluster") { json in
            json.object { json in
                json.member("mode", clusterMode)
                guard let state = records.clusterState?.value else { return }
                writeClusterState(state, to: &json)
                guard withMembers, let survey = state.book.engineTraffic.latestSurvey else { return }
                writeEngineSurvey(survey, of: state.node, to: &json)
            }
        }
    }

    private func writeClusterState(_ state: ClusterState, to json: inout JSONText) {
        if let node = state.node { json.member("node", node.description) }
        json.member("address", state.services.address)
        let members = state.book.memberCount
        json.member("members-count", state.book.isUncoordinated ? members.limitDivisor : members.presentCount)
        json.member("share-between-users", records.settings[.shareBetweenUsers] == 1)
        if let fault = state.engineFault {
            json.member("reason", fault.description)
            json.member("needs-operator", fault.needsOperator)
        }
        json.member("warnings") { json in
            let warnings = state.warnings.map(\.description) + state.health.warnings.map(\.description)
            json.array(warnings) { $0.value($1) }
        }
        json.member("suspended") { json in
            json.array(state.health.suspensions) { $0.value($1.description) }
        }
        json.member("unreadable-nodes", state.health.unreadableAddresses.count)
        json.member("claims", state.book.openClaimCount)
        json.member("running", state.book.claims.count - state.book.openClaimCount)
        json.member("held-bodies", state.heldResults.count)
        json.member("held-bytes", state.heldResults.memoryBytes)
        if let survey = state.book.engineTraffic.latestSurvey {
            json.member("engine-latency-us", survey.latencyMicroseconds)
            json.member("flights", survey.flights)
        }
        json.member("counts") { json in
            json.object { json in
                let counts = state.counts
                json.member("granted", counts.grantedFlights)
                json.member("hosted", counts.hostedFlights)
                json.member("results", counts.receivedResults)
                json.member("pulled", counts.pulledBodies)
                json.member("pulled-bytes", counts.pulledBytes)
                json.member("missed", counts.missedBodies)
                json.member("served", counts.servedBodies)
                json.member("uncoordinated", counts.uncoordinatedAttempts)
                json.member("stale", state.book.staleCompletionCount)
                json.member("losses", counts.membershipLosses)
            }
        }
    }

    private func writeEngineSurvey(_ survey: EngineSurvey, of node: NodeID?, to json: inout JSONText) {
        json.member("origins", survey.origins)
        json.member("paused-origins", survey.pausedOrigins)
        let unreadable = records.clusterState?.value.health.unreadableAddresses ?? []
        json.member("members") { json in
            json.array(survey.members) { json, member in
                json.object { json in
                    json.member("node", member.node.description)
                    json.member("self", member.node == node)
                    if let machine = member.machine { json.member("machine", machine) }
                    json.member("address", member.address)
                    json.member("lease-ms", member.leaseMilliseconds)
                    json.member("flights", member.flights)
                    json.member("readable", !unreadable.contains(member.address))
                }
            }
        }
    }
}
