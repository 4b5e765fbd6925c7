internal import EarshotWire

/// Checks of the queue's invariants, for the audit in tests and simulations.
extension FairQueue {
    private typealias Check = (Bool, @autoclosure () -> String) -> Void

    /// Returns a sentence for each violated invariant. O(queued interests).
    func checkInvariants() -> [String] {
        var faults: [String] = []
        func check(_ holds: Bool, _ fault: @autoclosure () -> String) { if !holds { faults.append(fault()) } }
        checkInterests(check)
        checkLanes(check)
        checkRoots(check)
        checkLines(check)
        checkTurns(check)
        checkParkings(check)
        check(
            lineHandles.count == lines.count && rootHandles.count == roots.count && laneHandles.count == lanes.count
                && leafHandles.count == leaves.count, "12: a key of the queue has no record")
        return faults
    }

    private func checkInterests(_ check: Check) {
        var counts: [Handle<Line>: ByClass<Int>] = [:]
        var poolCounts: [Handle<WorkerPool>: Int] = [:]
        var sum = 0
        for leaf in leaves.indices {
            let key = leaves[leaf].key
            guard lanes.contains(key.lane) else {
                check(false, "4: handler \(key.handler) is in no lane")
                continue
            }
            let members = interestChains.members(of: leaves[leaf].interests)
            check(!members.isEmpty, "12: handler \(key.handler) has no queued interest")
            check(
                members.allSatisfy { leafOfInterest[$0].wrappedValue == leaf },
                "4: handler \(key.handler) has another's interest")
            let line = line(of: key.lane)
            counts[line, default: ByClass(repeating: 0)][lanes[key.lane].priority] += members.count
            poolCounts[lines[line].key.pool, default: 0] += members.count
            sum += members.count
            check(leafHandles.find(key.hash) { leaves[$0].key == key } == leaf, "4: a handler has another number")
        }
        check(
            coolDownWaits.isConsistent { interest, scope in
                guard contains(interest), let leaf = leafOfInterest[interest].wrappedValue else { return false }
                return lanes[leaves[leaf].key.lane].key.scope == scope
            }, "4: an interest that is not queued at its origin waits for its cool-down")
        check(sum == count, "4: \(sum) interests are queued, not \(count)")
        check(
            leafOfInterest.handles.count { contains($0) } == count,
            "4: \(count) interests are queued, others have a place")
        for line in lines.indices {
            check(
                counts[line] == lines[line].interestCounts,
                "4: the counts of line \(line) are \(lines[line].interestCounts)")
        }
        check(
            pools.handles.allSatisfy { pools[$0].count == poolCounts[$0, default: 0] },
            "4: the counts by pool are \(poolCounts)")
    }

    private func checkLanes(_ check: Check) {
        var counts: [Handle<QueueLane>: Int] = [:]
        for leaf in leaves.indices { counts[leaves[leaf].key.lane, default: 0] += 1 }
        for lane in lanes.indices {
            let record = lanes[lane]
            let (usual, replacements) = (
                leafChains.members(of: record.leaves), leafChains.members(of: record.replacements)
            )
            check(
                usual.allSatisfy { leaves[$0].key.lane == lane && !leaves[$0].isReplacement }
                    && replacements.allSatisfy { leaves[$0].key.lane == lane && leaves[$0].isReplacement },
                "4: lane \(lane) has a wrong handler")
            let count = counts[lane, default: 0]
            check(usual.count + replacements.count == count, "4: lane \(lane) has turns for some of \(count) handlers")
            check(count > 0, "12: lane \(lane) is empty")
            check(
                laneHandles.find(record.key.hash) { lanes[$0].key == record.key } == lane,
                "4: a lane has another number")
            check(
                roots.contains(record.key.root) && roots[record.key.root].key.priority == record.priority,
                "7: lane \(lane) has no root of its class")
        }
    }

    private func checkRoots(_ check: Check) {
        var counts: [Handle<RootNode>: Int] = [:]
        for lane in lanes.indices { counts[lanes[lane].key.root, default: 0] += 1 }
        var rotating = 0
        for number in roots.indices {
            let root = roots[number]
            let count = counts[number, default: 0]
            check(root.laneCount == count && count > 0, "12: root \(number) counts \(root.laneCount) of \(count) lanes")
            check(
                rootHandles.find(root.key.hash) { roots[$0].key == root.key } == number, "4: a root has another number")
            check(
                root.isInRotation != root.lanes.isEmpty,
                "4: root \(number) has lanes and no turns, or turns and no lanes")
            let members = laneChains.members(of: root.lanes)
            rotating += members.count
            let isRotating = members.allSatisfy { lane in
                if lanes[lane].key.root == number, case .rotating = lanes[lane].phase { true } else { false }
            }
            check(isRotating, "4: root \(number) has a wrong lane")
        }
        let isRotating = lanes.indices.count { if case .rotating = lanes[$0].phase { true } else { false } }
        check(rotating == isRotating, "4: \(isRotating) lanes rotate, \(rotating) have turns")
    }

    private func checkLines(_ check: Check) {
        var counts: [Handle<Line>: Int] = [:]
        for root in roots.indices { counts[roots[root].key.line, default: 0] += 1 }
        var turning = 0
        for number in lines.indices {
            let line = lines[number]
            let count = counts[number, default: 0]
            check(line.rootCount == count && count > 0, "12: line \(number) counts \(line.rootCount) of \(count) roots")
            check(
                lineHandles.find(line.key.hash) { lines[$0].key == line.key } == number, "4: a line has another number")
            check(line.tag <= pools[line.key.pool].serial, "4: line \(number) has a turn of the future")
            var rotating = 0
            for priority in ClassSchedule.classes {
                let members = rootChains.members(of: line.rotations[priority])
                rotating += members.count
                check(
                    members.allSatisfy {
                        roots[$0].isInRotation && roots[$0].key.line == number && roots[$0].key.priority == priority
                    }, "4: line \(number) has a wrong root")
            }
            check(
                line.rotating == rotating, "4: line \(number) counts \(line.rotating) of \(rotating) roots with turns")
            turning += rotating
        }
        check(turning == roots.indices.count { roots[$0].isInRotation }, "4: a root has no turns")
    }

    private func checkTurns(_ check: Check) {
        for pool in pools.handles {
            var (tags, highTags): ([Handle<Line>: UInt64], [Handle<Line>: UInt64]) = ([:], [:])
            for line in lines.indices where lines[line].key.pool == pool {
                if lines[line].rotating > 0 { tags[line] = lines[line].tag }
                if !lines[line].rotations[.high].isEmpty { highTags[line] = lines[line].tag }
            }
            let faults =
                pools[pool].turns.checkInvariants(tags: tags)
                + pools[pool].highTurns.checkInvariants(tags: highTags)
            for fault in faults { check(false, fault) }
            check(Set(tags.values).count == tags.count, "4: two lines of pool \(pool) have the same turn")
        }
    }

    private func checkParkings(_ check: Check) {
        var count = 0
        let faults = parked.checkInvariants(members: laneChains.members) { lane, key, resource in
            count += 1
            return lanes.contains(lane) && lanes[lane].phase == .parked(resource) && line(of: lane) == key.line
                && lanes[lane].priority == key.priority
        }
        for fault in faults { check(false, fault) }
        let isParked = lanes.indices.count { if case .parked = lanes[$0].phase { true } else { false } }
        check(count == isParked, "4: \(isParked) lanes are parked, \(count) wait")
    }
}
