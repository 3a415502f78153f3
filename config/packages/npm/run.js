#!/usr/bin/env node
// Runs the program: `npx replicaset-controller`.
'use strict'

const { spawnSync } = require('node:child_process')
const { binary } = require('./index.js')

const { status, signal, error } = spawnSync(binary(), process.argv.slice(2), { stdio: 'inherit' })
if (error) console.error(`replicaset-controller: ${error.message}`)
if (signal) process.kill(process.pid, signal)
process.exitCode = status ?? 1
